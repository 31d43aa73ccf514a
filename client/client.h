// A client of castor-server.
//
//   castor::client::Client client({.target = "127.0.0.1:50051"});
//   castor::v1::AttendRequest request;
//   *request.mutable_query() = castor::client::MakeTensor(values, {tokens, heads, dim});
//   ...
//   auto response = client.Attend(request);
//   if (!response.ok()) std::cerr << response.error().ToString();
//
// Calls block until the answer, an error or the deadline. Only UNAVAILABLE is retried, until the
// deadline, so a call outlives a server's restart. If all attempts fail, the first error is
// returned. An Attend with an `output` in shared memory is retried only if the server cannot have
// received it: before there is a connection, and when the server says that it drains. After any
// other error without a `reason` the server may still write to that range: do not use the range
// again, but unregister the region and create a new object.
//
// The token file and the TLS files may change while the client lives. New calls send the new token,
// and new connections use the new files, a second or so later. While a file is wrong, each call
// fails with FAILED_PRECONDITION after 0 attempts.
//
// Any number of threads may use a client at a time. Its calls take turns on one connection to each
// address of the target's name. To use more connections, make more clients.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/status_code_enum.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "castor/v1/attention.grpc.pb.h"
#include "castor/v1/encoder.grpc.pb.h"
#include "castor/v1/model.grpc.pb.h"
#include "castor/v1/server.grpc.pb.h"
#include "castor/v1/shared_memory.grpc.pb.h"
#include "client/credentials.h"
#include "client/error.h"
#include "client/shared_memory.h"
#include "client/stream.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace castor::client {

// When a failed call is tried again. Only UNAVAILABLE is: the server starts, drains or cannot be
// reached. The server may still have run the request, since a connection can break after the
// request arrived; the client decides which calls may be repeated all the same (client/client.cc).
// Overload is not retried, since retries would add to it: RESOURCE_EXHAUSTED carries a hint for the
// caller, who knows whether the work is still worth doing.
struct RetryPolicy {
  int max_attempts = 0;  // the first one included; 1 turns retries off; 0: until the deadline
  std::chrono::milliseconds initial_backoff{100};
  std::chrono::milliseconds max_backoff{2000};
  double multiplier = 2;
};

// The wait before the next attempt, or nullopt to give up. A pure function. `error` ended the last
// of `error.attempts` attempts. `pushback` is its trailer grpc-retry-pushback-ms: the delay that
// the server asks for, which replaces the backoff; negative or unreadable means "never again".
// `remaining` is the time to the call's deadline, before which the next attempt must begin;
// `random` in [0, 1) spreads the retries of clients that failed together.
std::optional<std::chrono::milliseconds> DelayBeforeRetry(const RetryPolicy& policy,
                                                          const Error& error,
                                                          std::optional<std::string_view> pushback,
                                                          std::chrono::milliseconds remaining,
                                                          double random);

struct ClientOptions {
  // Any gRPC target, such as dns:///castor:50051. With shared memory: one server on this machine.
  std::string target = "127.0.0.1:50051";
  std::chrono::milliseconds deadline{60'000};  // of a call, its retries included
  RetryPolicy retry{};
  // Called before each retry with the error of the attempt, by the call's thread.
  std::function<void(const Error&)> on_retry{};
  // gRPC's service config in JSON; a resolver's own takes precedence. Empty: gRPC's defaults, which
  // send all calls to the first address that connects. Do not put a retryPolicy in it: gRPC would
  // repeat calls without this client's rules, with outputs in shared memory too. Use `retry`.
  std::string service_config = R"({"loadBalancingConfig": [{"round_robin": {}}]})";
  // Whether gRPC itself repeats calls that no server received. It costs a quarter of the calls that
  // a core can send.
  bool transparent_retries = true;
  std::optional<TlsOptions> tls = std::nullopt;  // nullopt: plaintext
  // Sent with each call as metadata `authorization: Bearer TOKEN`. A file overrides `token`.
  std::string token{}, token_file{};
  // Unless this is set, a token travels without TLS only within this machine.
  bool allow_plaintext_token = false;
};

// OK if a token may be sent to `target`, else FAILED_PRECONDITION that names the target.
absl::Status CheckMaySendToken(const ClientOptions& options, const std::string& target);

struct CallOptions {
  std::chrono::milliseconds deadline{0};  // 0: the client's
};

using HealthStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

class Client {
 public:
  // The constructor does not connect; the first call does.
  explicit Client(ClientOptions options = {});

  Result<v1::AttendResponse> Attend(const v1::AttendRequest& request, CallOptions call = {});
  Result<v1::EncodeResponse> Encode(const v1::EncodeRequest& request, CallOptions call = {});
  Result<v1::RerankResponse> Rerank(const v1::RerankRequest& request, CallOptions call = {});
  Result<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request, CallOptions call = {});
  Result<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                            CallOptions call = {});
  // Many requests over one call: client/stream.h.
  using AttendStreaming = Stream<v1::AttendRequest, v1::AttendResponse>;
  using EncodeStreaming = Stream<v1::EncodeRequest, v1::EncodeResponse>;
  std::unique_ptr<AttendStreaming> AttendStream(AttendStreaming::Source source,
                                                StreamOptions options = {});
  std::unique_ptr<EncodeStreaming> EncodeStream(EncodeStreaming::Source source,
                                                StreamOptions options = {});
  // `all`: those too that are not loaded but may be.
  Result<v1::ListModelsResponse> ListModels(CallOptions call = {}, bool all = false);
  Result<v1::Model> GetModel(const std::string& name, CallOptions call = {});
  // Answer when requests find the model, or when its memory is free; see model.proto.
  Result<v1::Model> LoadModel(const v1::LoadModelRequest& request, CallOptions call = {});
  Result<v1::UnloadModelResponse> UnloadModel(const std::string& name, CallOptions call = {});
  Result<v1::ServerInfo> GetServerInfo(CallOptions call = {});

  // Registers all of `memory` with the server under memory.name(); unregisters a region. A region
  // outlives this client and `memory` itself until it is unregistered. Both also succeed when an
  // earlier attempt of the same call did the work and lost only its answer.
  Result<v1::RegisterSharedMemoryResponse> RegisterSharedMemory(const SharedMemory& memory,
                                                                CallOptions call = {});
  Result<v1::UnregisterSharedMemoryResponse> UnregisterSharedMemory(const std::string& name,
                                                                    CallOptions call = {});
  Result<v1::ListSharedMemoryResponse> ListSharedMemory(CallOptions call = {});

  // "" is the whole server; see proto/README.md for the others. NOT_FOUND for unknown names.
  Result<HealthStatus> Health(const std::string& service = "", CallOptions call = {});

  // Waits inside gRPC, which reconnects only while a thread waits for it: after a plain sleep, a
  // server that is back would still seem unreachable.
  void Wait(std::chrono::milliseconds delay);

  // The channel serves other calls by gRPC's generated stubs; Authorize() adds the token to them.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  absl::Status Authorize(grpc::ClientContext& context);
  const ClientOptions& options() const { return options_; }

 private:
  template <typename Request, typename Response>
  friend class Stream;

  using Time = std::chrono::steady_clock::time_point;

  // Whether to repeat a call that the server may have received.
  enum class Repeat { kYes, kUnlessSent };

  std::chrono::milliseconds ClampDeadline(std::chrono::milliseconds deadline) const;
  Time DeadlineOf(CallOptions call) const;
  // Applies DelayBeforeRetry with the options. `context` is null if no call was made.
  std::optional<std::chrono::milliseconds> DelayBefore(const Error& error,
                                                       const grpc::ClientContext* context,
                                                       Time deadline) const;

  // OK if the TLS files and the token allow calls.
  absl::Status CheckSecurity();

  // OK once connected, else the reason why not.
  grpc::Status Connect(Time deadline);

  template <typename Stub, typename Request, typename Response>
  Result<Response> Call(Stub& stub,
                        grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                     Response*),
                        const Request& request, Time deadline, Repeat repeat = Repeat::kYes);

  const ClientOptions options_;
  TokenSource token_;
  std::atomic<bool> files_were_good_ = false;  // gRPC keeps the files that it has read
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::AttentionService::Stub> attention_;
  const std::unique_ptr<v1::EncoderService::Stub> encoder_;
  const std::unique_ptr<v1::ModelService::Stub> models_;
  const std::unique_ptr<v1::ServerService::Stub> server_;
  const std::unique_ptr<v1::SharedMemoryService::Stub> shared_memory_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace castor::client

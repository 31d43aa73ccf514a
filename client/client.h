// A client of castor-server.
//
//   castor::client::Client client({.target = "127.0.0.1:50051"});
//   castor::v1::AttendRequest request;
//   *request.mutable_query() = castor::client::MakeTensor(values, {tokens, heads, dim});
//   ...
//   auto response = client.Attend(request);
//   if (!response.ok()) std::cerr << response.error().ToString();
//
// Calls block until the answer, an error or the deadline. UNAVAILABLE is tried again within the
// deadline (client/retry.h), no other error; an Attend with an `output` in shared memory only while
// it cannot have been taken in: before a connection stands, and when the server says that it
// drains. After any other error without a `reason` the answer may still be written into that range:
// do not use it again, but unregister the region and take a fresh object.
//
// A client may be used by many threads at a time. Its calls share one connection to each address
// that the target's name has, and go to these in turn. To use several connections, make several
// clients.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <memory>
#include <string>

#include "castor/v1/attention.grpc.pb.h"
#include "castor/v1/encoder.grpc.pb.h"
#include "castor/v1/model.grpc.pb.h"
#include "castor/v1/server.grpc.pb.h"
#include "castor/v1/shared_memory.grpc.pb.h"
#include "client/error.h"
#include "client/retry.h"
#include "client/shared_memory.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace castor::client {

struct ClientOptions {
  // Any gRPC target, such as dns:///castor:50051. With shared memory: one server on this machine.
  std::string target = "127.0.0.1:50051";
  std::chrono::milliseconds deadline{60'000};  // of a call, its retries included
  RetryPolicy retry{};
  // gRPC's service config in JSON; a resolver's own comes before it. Empty: gRPC's defaults, which
  // send all calls to the first address that connects. A retryPolicy in it would repeat calls
  // behind this client's back, into shared memory as well: `retry` is the place for that.
  std::string service_config = R"({"loadBalancingConfig": [{"round_robin": {}}]})";
};

struct CallOptions {
  std::chrono::milliseconds deadline{0};  // 0: the client's
};

using HealthStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

class Client {
 public:
  // Never fails and never connects: the first call does.
  explicit Client(ClientOptions options = {});

  Result<v1::AttendResponse> Attend(const v1::AttendRequest& request, CallOptions call = {});
  Result<v1::EncodeResponse> Encode(const v1::EncodeRequest& request, CallOptions call = {});
  Result<v1::ListModelsResponse> ListModels(CallOptions call = {});
  Result<v1::Model> GetModel(const std::string& name, CallOptions call = {});
  Result<v1::ServerInfo> GetServerInfo(CallOptions call = {});

  // Has the server open all of `memory`, under memory.name(), and forget a region again. The region
  // outlives this client and `memory` itself: unregister what was registered. Both have succeeded
  // also when an earlier try of the same call did it and only its answer was lost.
  Result<v1::RegisterSharedMemoryResponse> RegisterSharedMemory(const SharedMemory& memory,
                                                                CallOptions call = {});
  Result<v1::UnregisterSharedMemoryResponse> UnregisterSharedMemory(const std::string& name,
                                                                    CallOptions call = {});
  Result<v1::ListSharedMemoryResponse> ListSharedMemory(CallOptions call = {});

  // "" is the whole server; see proto/README.md for the others. NOT_FOUND for unknown names.
  Result<HealthStatus> Health(const std::string& service = "", CallOptions call = {});

  // For calls of one's own, with gRPC's generated stubs.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const ClientOptions& options() const { return options_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  // Whether a call that a server may have taken in, without a word of what became of it, may be
  // made again.
  enum class Repeat { kYes, kUnlessSent };

  Time DeadlineOf(CallOptions call) const;

  // OK once a connection stands, or else what keeps it from standing.
  grpc::Status Connect(Time deadline);

  // Lets so much time pass.
  void Wait(std::chrono::milliseconds delay);

  template <typename Stub, typename Request, typename Response>
  Result<Response> Call(Stub& stub,
                        grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                     Response*),
                        const Request& request, Time deadline, Repeat repeat = Repeat::kYes);

  const ClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::AttentionService::Stub> attention_;
  const std::unique_ptr<v1::EncoderService::Stub> encoder_;
  const std::unique_ptr<v1::ModelService::Stub> models_;
  const std::unique_ptr<v1::ServerService::Stub> server_;
  const std::unique_ptr<v1::SharedMemoryService::Stub> shared_memory_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace castor::client

#include "client/client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <utility>

#include "client/credentials.h"

namespace castor::client {
namespace {

namespace tls_api = grpc::experimental;

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr unsigned kFileCheckSeconds = 1;  // between looks at TLS files; the least that gRPC takes

// Caps deadlines, so that no clock's arithmetic overflows.
constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

// Makes the credentials of a channel to `target` and completes its arguments. With TLS, gRPC reads
// the files each second, and new connections use what it read last; files that it cannot use fail
// the connection (see CheckTlsFiles). These credentials have a thread, so keep a channel for many
// calls.
std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(const std::string& target,
                                                          const std::optional<TlsOptions>& tls,
                                                          grpc::ChannelArguments* arguments) {
  // A proxy would look for the server on its own machine.
  if (IsOnThisMachine(target)) arguments->SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!tls) return grpc::InsecureChannelCredentials();
  if (!tls->server_name.empty()) {
    arguments->SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, tls->server_name);
  }
  const std::string authorities = AuthoritiesOf(*tls);
  const bool identity = !tls->certificate_file.empty() && !tls->key_file.empty();
  if (authorities.empty() && !identity) {
    return grpc::SslCredentials({});  // there are no files to watch
  }
  tls_api::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls_api::FileWatcherCertificateProvider>(
      identity ? tls->key_file : "", identity ? tls->certificate_file : "", authorities,
      kFileCheckSeconds));
  if (!authorities.empty()) options.watch_root_certs();
  if (identity) options.watch_identity_key_cert_pairs();
  return tls_api::TlsCredentials(options);
}

std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  // The client sets no limit; the server's applies.
  arguments.SetMaxReceiveMessageSize(INT_MAX);
  arguments.SetMaxSendMessageSize(INT_MAX);
  // A dead peer is noticed within 40 s of a call that hangs on it; idle connections stay silent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  // Reconnect as soon as our retries ask for it. With gRPC's own delay of a second, the first
  // retries would be pointless.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // Look a name up again as soon as a server behind it goes. With gRPC's own 30 s, a caller whose
  // servers are all replaced sooner would reach none for that long.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1'000);
  if (!options.transparent_retries) arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Two clients of one process get a connection each.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!options.service_config.empty()) arguments.SetServiceConfigJSON(options.service_config);
  const auto credentials = MakeCredentials(options.target, options.tls, &arguments);
  return grpc::CreateCustomChannel(options.target, credentials, arguments);
}

milliseconds Remaining(steady_clock::time_point deadline) {
  return std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
}

// Converts to gRPC's clock.
std::chrono::system_clock::time_point ToSystemClock(steady_clock::time_point time) {
  return std::chrono::system_clock::now() + (time - steady_clock::now());
}

double Random() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  return std::uniform_real_distribution<double>()(generator);
}

}  // namespace

absl::Status CheckMaySendToken(const ClientOptions& options, const std::string& target) {
  if (options.tls || options.allow_plaintext_token || IsOnThisMachine(target)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError("a token is not sent to " + target +
                                       " over plaintext: use TLS, or set allow_plaintext_token");
}

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      token_(options_.token, options_.token_file),
      channel_(MakeChannel(options_)),
      attention_(v1::AttentionService::NewStub(channel_)),
      encoder_(v1::EncoderService::NewStub(channel_)),
      models_(v1::ModelService::NewStub(channel_)),
      server_(v1::ServerService::NewStub(channel_)),
      shared_memory_(v1::SharedMemoryService::NewStub(channel_)),
      health_(grpc::health::v1::Health::NewStub(channel_)) {}

milliseconds Client::ClampDeadline(milliseconds deadline) const {
  return std::clamp(deadline.count() > 0 ? deadline : options_.deadline, milliseconds(0), kLongest);
}

Client::Time Client::DeadlineOf(CallOptions call) const {
  return steady_clock::now() + ClampDeadline(call.deadline);
}

std::optional<milliseconds> Client::DelayBefore(const Error& error,
                                                const grpc::ClientContext* context,
                                                Time deadline) const {
  std::optional<std::string_view> pushback;
  if (context != nullptr) {
    const auto& trailers = context->GetServerTrailingMetadata();
    if (const auto found = trailers.find("grpc-retry-pushback-ms"); found != trailers.end()) {
      pushback.emplace(found->second.data(), found->second.size());
    }
  }
  const auto delay =
      DelayBeforeRetry(options_.retry, error, pushback, Remaining(deadline), Random());
  if (delay && options_.on_retry) options_.on_retry(error);
  return delay;
}

absl::Status Client::CheckSecurity() {
  if (!token_.empty()) {
    if (absl::Status status = CheckMaySendToken(options_, options_.target); !status.ok()) {
      return status;
    }
  }
  if (!options_.tls || files_were_good_.load(std::memory_order_relaxed)) return absl::OkStatus();
  absl::Status status = CheckTlsFiles(*options_.tls);
  if (status.ok()) files_were_good_.store(true, std::memory_order_relaxed);
  return status;
}

absl::Status Client::Authorize(grpc::ClientContext& context) {
  if (absl::Status status = CheckSecurity(); !status.ok()) return status;
  const absl::StatusOr<std::string> header = token_.Header();
  if (!header.ok()) return header.status();
  if (!header->empty()) context.AddMetadata("authorization", *header);
  return absl::OkStatus();
}

// Calls Health, which has no effect and whose failure says what is wrong with the connection.
grpc::Status Client::Connect(Time deadline) {
  if (channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) return grpc::Status::OK;
  grpc::ClientContext context;
  context.set_deadline(ToSystemClock(deadline));
  (void)Authorize(context);  // Call() has reported its errors
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = health_->Check(&context, {}, &response);
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
      return status;
    default:
      return grpc::Status::OK;  // a peer answered
  }
}

void Client::Wait(milliseconds delay) {
  const Time until = steady_clock::now() + delay;
  while (steady_clock::now() < until) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_SHUTDOWN) return std::this_thread::sleep_until(until);
    channel_->WaitForStateChange(state, ToSystemClock(until));
  }
}

template <typename Stub, typename Request, typename Response>
Result<Response> Client::Call(Stub& stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                              const Request& request, Time deadline, Repeat repeat) {
  if (const auto too_long = CheckSize(request)) return *too_long;
  std::optional<Error> first;  // error of the attempts
  for (int attempts = 1;; ++attempts) {
    grpc::ClientContext context;
    if (const absl::Status may = Authorize(context); !may.ok()) return LocalError(may);
    grpc::Status status = grpc::Status::OK;
    // A call that fails on a connection may have reached the server. Where repeating it would do
    // harm, connect first, so that a missing connection fails before the call is sent.
    if (repeat == Repeat::kUnlessSent) status = Connect(deadline);
    const bool sent = status.ok();
    if (sent) {
      context.set_deadline(ToSystemClock(deadline));
      Response response;
      status = (stub.*method)(&context, request, &response);
      if (status.ok()) return response;
    }
    Error error = ParseError(status);
    error.attempts = attempts;
    if (!first) first = error;
    const bool maybe_taken = sent && error.reason != "DRAINING";
    if (maybe_taken && repeat == Repeat::kUnlessSent) return error;

    const auto delay = DelayBefore(error, sent ? &context : nullptr, deadline);
    if (!delay) {
      // Report the first error, which is the cause: a server that crashed refuses connections
      // later.
      const bool said_no_more = error.code == grpc::StatusCode::UNAVAILABLE ||
                                error.code == grpc::StatusCode::DEADLINE_EXCEEDED;
      if (!said_no_more || !error.reason.empty()) return error;
      first->attempts = attempts;
      first->reason.clear();  // the last attempt may have run, whatever the first one's reason says
      return *std::move(first);
    }
    Wait(*delay);
  }
}

Result<v1::AttendResponse> Client::Attend(const v1::AttendRequest& request, CallOptions call) {
  return Call(*attention_, &v1::AttentionService::Stub::Attend, request, DeadlineOf(call),
              request.has_output() ? Repeat::kUnlessSent : Repeat::kYes);
}

Result<v1::EncodeResponse> Client::Encode(const v1::EncodeRequest& request, CallOptions call) {
  return Call(*encoder_, &v1::EncoderService::Stub::Encode, request, DeadlineOf(call));
}

Result<v1::RerankResponse> Client::Rerank(const v1::RerankRequest& request, CallOptions call) {
  return Call(*encoder_, &v1::EncoderService::Stub::Rerank, request, DeadlineOf(call));
}

Result<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request,
                                              CallOptions call) {
  return Call(*encoder_, &v1::EncoderService::Stub::Tokenize, request, DeadlineOf(call));
}

Result<v1::DetokenizeResponse> Client::Detokenize(const v1::DetokenizeRequest& request,
                                                  CallOptions call) {
  return Call(*encoder_, &v1::EncoderService::Stub::Detokenize, request, DeadlineOf(call));
}

std::unique_ptr<Client::AttendStreaming> Client::AttendStream(AttendStreaming::Source source,
                                                              StreamOptions options) {
  options.deadline = ClampDeadline(options.deadline);
  return std::make_unique<AttendStreaming>(
      *this,
      [this](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return attention_->PrepareAsyncAttendStream(context, queue);
      },
      std::move(source), options);
}

std::unique_ptr<Client::EncodeStreaming> Client::EncodeStream(EncodeStreaming::Source source,
                                                              StreamOptions options) {
  options.deadline = ClampDeadline(options.deadline);
  return std::make_unique<EncodeStreaming>(
      *this,
      [this](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return encoder_->PrepareAsyncEncodeStream(context, queue);
      },
      std::move(source), options);
}

Result<v1::ListModelsResponse> Client::ListModels(CallOptions call, bool all) {
  v1::ListModelsRequest request;
  request.set_all(all);
  return Call(*models_, &v1::ModelService::Stub::ListModels, request, DeadlineOf(call));
}

Result<v1::Model> Client::LoadModel(const v1::LoadModelRequest& request, CallOptions call) {
  return Call(*models_, &v1::ModelService::Stub::LoadModel, request, DeadlineOf(call));
}

Result<v1::UnloadModelResponse> Client::UnloadModel(const std::string& name, CallOptions call) {
  v1::UnloadModelRequest request;
  request.set_name(name);
  return Call(*models_, &v1::ModelService::Stub::UnloadModel, request, DeadlineOf(call));
}

Result<v1::Model> Client::GetModel(const std::string& name, CallOptions call) {
  v1::GetModelRequest request;
  request.set_name(name);
  return Call(*models_, &v1::ModelService::Stub::GetModel, request, DeadlineOf(call));
}

Result<v1::ServerInfo> Client::GetServerInfo(CallOptions call) {
  return Call(*server_, &v1::ServerService::Stub::GetServerInfo, v1::GetServerInfoRequest(),
              DeadlineOf(call));
}

Result<v1::RegisterSharedMemoryResponse> Client::RegisterSharedMemory(const SharedMemory& memory,
                                                                      CallOptions call) {
  const Time deadline = DeadlineOf(call);
  v1::RegisterSharedMemoryRequest request;
  request.set_name(memory.name());
  request.set_key(memory.key());
  request.set_size(static_cast<int64_t>(memory.size()));
  auto response = Call(*shared_memory_, &v1::SharedMemoryService::Stub::RegisterSharedMemory,
                       request, deadline);
  if (response.ok() || response.error().reason != "REGION_EXISTS" ||
      response.error().attempts == 1) {
    return response;
  }
  // An earlier attempt of this call may have registered the region and lost only its answer.
  const auto list = Call(*shared_memory_, &v1::SharedMemoryService::Stub::ListSharedMemory,
                         v1::ListSharedMemoryRequest(), deadline);
  if (!list.ok()) return list.error();
  for (const v1::SharedMemoryRegion& region : list->regions()) {
    if (region.name() == request.name() && region.key() == request.key() &&
        region.offset() == request.offset() && region.size() == request.size()) {
      return v1::RegisterSharedMemoryResponse();
    }
  }
  return response;
}

Result<v1::UnregisterSharedMemoryResponse> Client::UnregisterSharedMemory(const std::string& name,
                                                                          CallOptions call) {
  v1::UnregisterSharedMemoryRequest request;
  request.set_name(name);
  auto response = Call(*shared_memory_, &v1::SharedMemoryService::Stub::UnregisterSharedMemory,
                       request, DeadlineOf(call));
  // An earlier attempt of this call may have unregistered the region and lost only its answer.
  if (!response.ok() && response.error().reason == "REGION_NOT_FOUND" &&
      response.error().attempts > 1) {
    return v1::UnregisterSharedMemoryResponse();
  }
  return response;
}

Result<v1::ListSharedMemoryResponse> Client::ListSharedMemory(CallOptions call) {
  return Call(*shared_memory_, &v1::SharedMemoryService::Stub::ListSharedMemory,
              v1::ListSharedMemoryRequest(), DeadlineOf(call));
}

Result<HealthStatus> Client::Health(const std::string& service, CallOptions call) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  auto response = Call(*health_, &grpc::health::v1::Health::Stub::Check, request, DeadlineOf(call));
  if (!response.ok()) return response.error();
  return response->status();
}

std::optional<milliseconds> DelayBeforeRetry(const RetryPolicy& policy, const Error& error,
                                             std::optional<std::string_view> pushback,
                                             milliseconds remaining, double random) {
  const int attempts = error.attempts;
  const bool last = policy.max_attempts > 0 && attempts >= policy.max_attempts;
  if (error.code != grpc::StatusCode::UNAVAILABLE || last) return std::nullopt;
  milliseconds delay;
  if (pushback.has_value()) {
    int32_t wished = 0;
    const char* const end = pushback->data() + pushback->size();
    const auto [rest, unreadable] = std::from_chars(pushback->data(), end, wished);
    if (unreadable != std::errc() || rest != end || wished < 0) return std::nullopt;
    // Attempts may have no bound, so a server that always says 0 must not make the client spin.
    delay = milliseconds(wished);
    if (attempts > 1) delay = std::max(delay, policy.initial_backoff);
  } else {
    const double backoff = std::min(static_cast<double>(policy.max_backoff.count()),
                                    static_cast<double>(policy.initial_backoff.count()) *
                                        std::pow(policy.multiplier, std::max(0, attempts - 1)));
    delay = milliseconds(std::llround(backoff * (0.5 + 0.5 * random)));
    delay = std::max(delay, error.retry_after.value_or(delay));
  }
  if (delay >= remaining) return std::nullopt;
  return delay;
}

}  // namespace castor::client

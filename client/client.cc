#include "client/client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <climits>
#include <random>
#include <thread>
#include <utility>

namespace castor::client {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::system_clock;  // what gRPC's deadlines are in

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  // The server's limit is the one that counts.
  arguments.SetMaxReceiveMessageSize(INT_MAX);
  arguments.SetMaxSendMessageSize(INT_MAX);
  // A dead peer is noticed within 40 s of a call that hangs on it; idle connections stay silent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  // Reconnect as fast as our retries ask; gRPC's own second would make the first ones pointless.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // Two clients of one process get two connections, not a share of one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

double Random() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  return std::uniform_real_distribution<double>()(generator);
}

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      channel_(MakeChannel(options_.target)),
      attention_(v1::AttentionService::NewStub(channel_)),
      encoder_(v1::EncoderService::NewStub(channel_)),
      models_(v1::ModelService::NewStub(channel_)),
      server_(v1::ServerService::NewStub(channel_)),
      shared_memory_(v1::SharedMemoryService::NewStub(channel_)),
      health_(grpc::health::v1::Health::NewStub(channel_)) {}

template <typename Stub, typename Request, typename Response>
Result<Response> Client::Call(Stub& stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                              const Request& request, CallOptions call) {
  const milliseconds allowed = call.deadline.count() > 0 ? call.deadline : options_.deadline;
  const Clock::time_point deadline = Clock::now() + allowed;
  for (int attempts = 1;; ++attempts) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (status.ok()) return response;

    Failure failure{.code = status.error_code(), .pushback = std::nullopt};
    const auto& trailers = context.GetServerTrailingMetadata();
    if (const auto found = trailers.find("grpc-retry-pushback-ms"); found != trailers.end()) {
      failure.pushback = std::string_view(found->second.data(), found->second.size());
    }
    const auto remaining = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    const auto delay = DelayBeforeRetry(options_.retry, attempts, failure, remaining, Random());
    if (!delay) {
      Error error = ParseError(status);
      error.attempts = attempts;
      return error;
    }
    std::this_thread::sleep_for(*delay);
  }
}

Result<v1::AttendResponse> Client::Attend(const v1::AttendRequest& request, CallOptions call) {
  return Call(*attention_, &v1::AttentionService::Stub::Attend, request, call);
}

Result<v1::EncodeResponse> Client::Encode(const v1::EncodeRequest& request, CallOptions call) {
  return Call(*encoder_, &v1::EncoderService::Stub::Encode, request, call);
}

Result<v1::ListModelsResponse> Client::ListModels(CallOptions call) {
  return Call(*models_, &v1::ModelService::Stub::ListModels, v1::ListModelsRequest(), call);
}

Result<v1::Model> Client::GetModel(const std::string& name, CallOptions call) {
  v1::GetModelRequest request;
  request.set_name(name);
  return Call(*models_, &v1::ModelService::Stub::GetModel, request, call);
}

Result<v1::ServerInfo> Client::GetServerInfo(CallOptions call) {
  return Call(*server_, &v1::ServerService::Stub::GetServerInfo, v1::GetServerInfoRequest(), call);
}

Result<v1::RegisterSharedMemoryResponse> Client::RegisterSharedMemory(const SharedMemory& memory,
                                                                      CallOptions call) {
  v1::RegisterSharedMemoryRequest request;
  request.set_name(memory.name());
  request.set_key(memory.key());
  request.set_size(static_cast<int64_t>(memory.size()));
  return Call(*shared_memory_, &v1::SharedMemoryService::Stub::RegisterSharedMemory, request, call);
}

Result<v1::UnregisterSharedMemoryResponse> Client::UnregisterSharedMemory(const std::string& name,
                                                                          CallOptions call) {
  v1::UnregisterSharedMemoryRequest request;
  request.set_name(name);
  return Call(*shared_memory_, &v1::SharedMemoryService::Stub::UnregisterSharedMemory, request,
              call);
}

Result<v1::ListSharedMemoryResponse> Client::ListSharedMemory(CallOptions call) {
  return Call(*shared_memory_, &v1::SharedMemoryService::Stub::ListSharedMemory,
              v1::ListSharedMemoryRequest(), call);
}

Result<HealthStatus> Client::Health(const std::string& service, CallOptions call) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  auto response = Call(*health_, &grpc::health::v1::Health::Stub::Check, request, call);
  if (!response.ok()) return response.error();
  return response->status();
}

}  // namespace castor::client

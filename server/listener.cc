#include "server/listener.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <limits>

namespace castor::server {
namespace {

// Requests carry no metadata worth more; this gRPC's parser has had trouble with large headers.
constexpr int kMaxMetadataBytes = 8 << 10;

// Clients may ping this often, also between calls, without being told to go away.
constexpr int kMinPingIntervalMs = 20'000;

// Our own pings, which find peers that vanished without a word.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;

int Milliseconds(std::chrono::milliseconds duration) {
  return static_cast<int>(std::min<int64_t>(duration.count(), std::numeric_limits<int>::max()));
}

void Limit(const ServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);  // answers are as large as requests made them
  // A compressed message is inflated whole before its size is checked. Without algorithms it is
  // refused unread.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);

  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds(options.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two servers must not share a port
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  if (options.max_connection_idle.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                               Milliseconds(options.max_connection_idle));
  }
  if (options.max_connection_age.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               Milliseconds(options.max_connection_age));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                               Milliseconds(options.max_connection_age_grace));
  }
}

bool IsUnixSocket(const std::string& address) { return address.rfind("unix", 0) == 0; }

}  // namespace

absl::StatusOr<Listener> OpenListener(const ServerOptions& options,
                                      const std::vector<grpc::Service*>& services) {
  // These two are plugins of every server that the process builds afterwards.
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  if (options.channelz) grpc::channelz::experimental::InitChannelzService();

  grpc::ServerBuilder builder;
  Limit(options, builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  Listener listener;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &listener.port);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || listener.port <= 0) {
    return absl::UnavailableError("cannot listen on " + options.listen +
                                  ": the address is taken, or not this machine's");
  }
  if (IsUnixSocket(options.listen)) listener.port = 0;
  return listener;
}

std::string WithPort(const std::string& address, int port) {
  if (IsUnixSocket(address)) return address;
  return address.substr(0, address.rfind(':') + 1) + std::to_string(port);
}

}  // namespace castor::server

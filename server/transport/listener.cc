#include "server/transport/listener.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "engine/base/machine.h"
#include "engine/base/team.h"

// grpc_core::Server::SendGoaways(), which gRPC's library exports and no header of it declares.
// Weak: a library without it gives a null pointer.
extern "C" __attribute__((weak)) void CastorSendGoaways(grpc_server* server) __asm__(
    "_ZN9grpc_core6Server11SendGoawaysEv");

namespace castor::server {
namespace {

// Threads that gRPC starts at once, in addition to two per processor: executors, timers, pollers.
constexpr int kGrpcThreads = 8;

// For gRPC's own shutdown, with no call and no connection left.
constexpr std::chrono::milliseconds kShutdownDeadline{1000};

// Clients may ping this often, also between calls, without getting a GOAWAY. Many do every 10 s,
// and pings that were held up on the way come closer together.
constexpr int kMinPingIntervalMs = 5'000;

// Our own pings, which find peers that vanished silently.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;

// The most bytes that gRPC reads from a connection at a time. It parses them before it checks its
// memory again, where a byte of headers may take 240 bytes.
constexpr int kMaxReadBytes = 256 << 10;

int Milliseconds(std::chrono::milliseconds duration) {
  return static_cast<int>(std::min<int64_t>(duration.count(), std::numeric_limits<int>::max()));
}

void Limit(const ListenerSettings& settings, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(settings.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);  // the request decides the size of the answer
  // gRPC inflates a compressed message whole before it checks the size. With no algorithm enabled,
  // it refuses it unread.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);

  // The quota covers bytes that have arrived and that no handler has yet: parts of messages, and
  // headers. From half of it on gRPC lets peers send less. Beyond it gRPC ends calls of any
  // connection with RESOURCE_EXHAUSTED, one by one, until there is room.
  grpc::ResourceQuota quota("castor");
  quota.Resize(static_cast<size_t>(settings.max_transport_bytes));
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kMaxReadBytes);

  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, settings.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(kMaxMetadataBytes));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds(settings.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             Milliseconds(settings.max_connection_idle));
  if (settings.max_connection_age.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               Milliseconds(settings.max_connection_age));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                               Milliseconds(settings.max_connection_age_grace));
  }
}

// Sends GOAWAY on every connection: a peer starts no new call on it from when it hears of that,
// those on their way until then are served, and a connection closes when its last call has ended.
// False, and nothing is done, where gRPC is another than the one this was written for: in that one
// a grpc_server is a grpc_core::Server.
//
// gRPC has no call for this in its interface. Its shutdown also sends GOAWAY, but resets the calls
// that arrive before the peer has heard of it: some are lost at every rolling update.
bool SendGoaways(grpc::Server& server) {
  if (CastorSendGoaways == nullptr) return false;
  if (!std::string_view(grpc_version_string()).starts_with("29.")) return false;
  // Its core may be called only inside what it calls an execution context. The interface makes none
  // for us, but destroys the bytes of a message in one.
  static char byte = 0;
  grpc_slice slice = grpc_slice_new_with_user_data(
      &byte, 1, [](void* core) { CastorSendGoaways(static_cast<grpc_server*>(core)); },
      server.c_server());
  grpc_byte_buffer* const buffer = grpc_raw_byte_buffer_create(&slice, 1);
  grpc_slice_unref(slice);
  grpc_byte_buffer_destroy(buffer);  // the last reference
  return true;
}

}  // namespace

int64_t DecodingBytes(const ServerOptions& options) { return options.max_transport_bytes / 3; }

ListenerSettings SettingsOf(const ServerOptions& options) {
  return {.address = options.listen,
          .max_message_bytes = options.max_message_bytes,
          .max_transport_bytes = options.max_transport_bytes - DecodingBytes(options),
          .max_concurrent_streams = options.max_concurrent_streams,
          .handshake_timeout = options.handshake_timeout,
          .max_connection_age = options.max_connection_age,
          .max_connection_age_grace = options.max_deadline};
}

absl::Status CheckThreadsOfGrpc() {
  return CheckThreads(kGrpcThreads + 2 * static_cast<int>(std::thread::hardware_concurrency()));
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(
    const ListenerSettings& settings, std::shared_ptr<grpc::ServerCredentials> credentials,
    const std::vector<grpc::Service*>& services, Connections& connections, Metrics& metrics,
    Periodic& periodic) {
  if (!connections.ok()) return absl::UnavailableError("no file descriptor is left (ulimit -n)");
  auto acceptor = Acceptor::Bind(settings.address);
  if (!acceptor.ok()) return acceptor.status();

  grpc::ServerBuilder builder;
  Limit(settings, builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  auto listener = std::unique_ptr<Listener>(new Listener(connections));
  listener->credentials_ = std::move(credentials);
  listener->sink_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      listener->credentials_);
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr) return absl::InternalError("cannot start gRPC's server");
  listener->watch_.emplace(periodic, Connections::kWatchEvery, [&connections] {
    return connections.Watch(std::chrono::steady_clock::now());
  });
  listener->acceptor_ = *std::move(acceptor);
  listener->acceptor_->Start(
      [sink = listener->sink_.get()](int from, int socket, const sockaddr_storage&) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
        parameters.listener_fd = from;
        parameters.fd = socket;
        sink->HandleNewConnection(&parameters);
      },
      &connections, &metrics);
  return listener;
}

Listener::~Listener() { Close(); }

bool Listener::Leave() {
  if (server_ == nullptr) return true;
  // First: a peer that is told to leave would come back at once.
  acceptor_->StopListening();
  return SendGoaways(*server_);
}

void Listener::Disconnect(TimePoint deadline) {
  acceptor_->StopListening();
  acceptor_->Stop();  // no more connections are handed over
  connections_.CloseAll(deadline);
}

void Listener::Close() {
  if (server_ == nullptr) return;
  // Before gRPC shuts down: it would reset calls that reach it meanwhile, and their callers could
  // not know that nothing was done. On a closed connection they see UNAVAILABLE.
  Disconnect(TimePoint::min());
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownDeadline);
  server_.reset();
}

std::string WithPort(const std::string& address, int port) {
  if (address.starts_with("unix:")) return address;
  return address.substr(0, address.rfind(':') + 1) + std::to_string(port);
}

namespace {

constexpr int64_t kMaxConnectionsByDefault = 4096;

// Calls on all connections: as many as the engine queues, and as many whose messages still arrive,
// but never fewer than this.
constexpr int64_t kLeastMaxCalls = 8192;

// Connections to the health port; fewer if that is more than an eighth of the room.
constexpr int64_t kHealthConnections = 64;

// The health port's own descriptors, without its connections'.
constexpr int64_t kHealthDescriptors = 8;

// Reserved for scrapes, the log, wake-ups of later threads, and whatever a library opens.
constexpr int64_t kSpareDescriptors = 24;

int64_t OpenDescriptors() {
  std::error_code error;
  int64_t count = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 30));
}

ServerOptions WithTransportLimits(ServerOptions options, int64_t descriptors,
                                  int64_t open_descriptors, int64_t memory_bytes) {
  const int64_t regions = options.shared_memory ? options.max_shared_memory_regions : 0;
  int64_t left = descriptors - open_descriptors - regions - kSpareDescriptors;
  if (!options.health_listen.empty()) {
    left -= kHealthDescriptors;
    const int64_t part =
        std::clamp<int64_t>(left / kDescriptorsPerConnection / 8, 1, kHealthConnections);
    if (options.max_health_connections == 0) options.max_health_connections = part;
    left -= options.max_health_connections * kDescriptorsPerConnection;
  }
  const int64_t room = std::max<int64_t>(left / kDescriptorsPerConnection, 1);
  if (options.max_connections == 0) options.max_connections = kMaxConnectionsByDefault;
  options.max_connections = std::min(options.max_connections, room);
  if (options.max_connections_per_host == 0) {
    options.max_connections_per_host = std::max<int64_t>(options.max_connections * 3 / 4, 1);
  }
  if (options.max_new_connections == 0) {
    options.max_new_connections = std::max<int64_t>(options.max_connections / 4, 1);
  }
  if (options.max_calls == 0) {
    options.max_calls = std::max(2 * options.engine.max_queued_requests, kLeastMaxCalls);
  }
  if (options.max_transport_bytes == 0) {
    options.max_transport_bytes = std::max(memory_bytes / 4, 3 * options.max_message_bytes);
  }
  return options;
}

ServerOptions WithTransportLimits(ServerOptions options) {
  return WithTransportLimits(std::move(options), RaiseDescriptorLimit(), OpenDescriptors(),
                             MemoryLimitBytes());
}

}  // namespace castor::server

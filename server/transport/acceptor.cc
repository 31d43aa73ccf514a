#include "server/transport/acceptor.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "server/logging.h"

namespace castor::server {
namespace {

using std::chrono::steady_clock;

// If a peer does not read or acknowledge pending bytes for this long, the kernel ends the
// connection. gRPC's own pings would wait behind those bytes.
constexpr int kStuckPeerMs = 30'000;

// How often the log reports refused connections.
constexpr std::chrono::seconds kWarnInterval{10};

// The delay before the next attempt when no descriptor is left, not even the reserve.
constexpr std::chrono::milliseconds kOutOfDescriptors{100};

int OpenReserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

std::string_view NameOf(RefusedConnection cause) {
  switch (cause) {
    case RefusedConnection::kTooMany:
      return "too many connections (--max-connections)";
    case RefusedConnection::kTooManyOfHost:
      return "too many connections from one host (three quarters of --max-connections)";
    case RefusedConnection::kNoDescriptor:
      return "the process has no file descriptor left (ulimit -n)";
    default:
      return "";  // not refused here, but closed later
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Bind(const std::string& address) {
  const auto failed = [&](absl::string_view cause) {
    return absl::UnavailableError("cannot listen on " + address + ": " + std::string(cause));
  };
  auto acceptor = std::unique_ptr<Acceptor>(new Acceptor);
  acceptor->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  acceptor->reserve_ = OpenReserve();
  if (acceptor->epoll_ < 0 || acceptor->reserve_ < 0) return failed(std::strerror(errno));
  auto sockets = ListeningSockets::Open(address);
  if (!sockets.ok()) return failed(sockets.status().message());
  acceptor->sockets_ = *std::move(sockets);
  return acceptor;
}

Acceptor::~Acceptor() {
  Stop();
  for (const int descriptor : {epoll_, reserve_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

void Acceptor::Start(Sink sink, Connections* connections, Metrics* metrics) {
  sink_ = std::move(sink);
  connections_ = connections;
  metrics_ = metrics;
  for (const int listener : sockets_->descriptors()) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = listener;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, listener, &event);
  }
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::StopListening() {
  listening_ = false;
  if (sockets_ == nullptr) return;  // Bind failed
  // They stay open, because the thread may be about to accept from them, and learns of it so.
  for (const int listener : sockets_->descriptors()) shutdown(listener, SHUT_RD);
}

void Acceptor::Stop() {
  StopListening();
  if (thread_.joinable()) thread_.join();
  if (sockets_ != nullptr) sockets_->RemovePath();
}

void Acceptor::Run() {
  pthread_setname_np(pthread_self(), "acceptor");
  for (size_t listening = sockets_->descriptors().size(); listening > 0;) {
    epoll_event event;
    if (epoll_wait(epoll_, &event, 1, -1) < 1 || AcceptAll(event.data.fd)) continue;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, event.data.fd, nullptr);
    --listening;
  }
}

bool Acceptor::AcceptAll(int listener) {
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    const int socket =
        accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      switch (errno) {
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
          if (TurnAwayWithTheReserve(listener)) continue;
          std::this_thread::sleep_for(kOutOfDescriptors);
          return listening_;
        case EAGAIN:
        case EINVAL:
          return listening_;
        default:
          continue;  // EINTR, or one connection's own failure: ECONNABORTED and the like
      }
    }
    if (from.ss_family != AF_UNIX) {
      const int on = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kStuckPeerMs, sizeof(kStuckPeerMs));
    }
    if (const auto refused = connections_->Add(socket, from)) {
      Refuse(*refused);  // count it before the peer can see it
      close(socket);
      continue;
    }
    sink_(listener, socket, from);
  }
}

bool Acceptor::TurnAwayWithTheReserve(int listener) {
  if (reserve_ < 0) reserve_ = OpenReserve();
  if (reserve_ < 0) return false;
  close(std::exchange(reserve_, -1));
  const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket >= 0) close(socket);
  reserve_ = OpenReserve();
  Refuse(RefusedConnection::kNoDescriptor);
  return socket >= 0;
}

void Acceptor::Refuse(RefusedConnection cause) {
  if (metrics_ != nullptr) metrics_->ConnectionRefused(cause);
  ++refused_since_warning_;
  const steady_clock::time_point now = steady_clock::now();
  if (now - warned_ < kWarnInterval) return;
  LogWarning("connection refused", {{"port", port()},
                                    {"cause", NameOf(cause)},
                                    {"turned_away", refused_since_warning_},
                                    {"open", connections_->open()}});
  warned_ = now;
  refused_since_warning_ = 0;
}

}  // namespace castor::server

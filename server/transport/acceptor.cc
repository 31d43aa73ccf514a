#include "server/transport/acceptor.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <variant>

#include "server/logging.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// If a peer does not read or acknowledge pending bytes for this long, the kernel ends the
// connection. gRPC's own pings would wait behind those bytes.
constexpr int kStuckPeerMs = 30'000;

// How often the log reports refused connections.
constexpr std::chrono::seconds kWarnEvery{10};

// The delay before the next attempt when no descriptor is left, not even the reserve.
constexpr int kOutOfDescriptorsMs = 100;

void Watch(int epoll, int descriptor, uint32_t events = EPOLLIN) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

int OpenReserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

std::string_view NameOf(RefusedConnection cause) {
  switch (cause) {
    case RefusedConnection::kTooMany:
      return "too many connections (--max-connections)";
    case RefusedConnection::kTooManyOfHost:
      return "too many connections from one host (three quarters of --max-connections)";
    case RefusedConnection::kNoDescriptor:
      return "the process has no file descriptor left (ulimit -n)";
    case RefusedConnection::kTooManyNew:
      return "too many connections without a call (a quarter of --max-connections)";
    case RefusedConnection::kSilent:
      return "it sent nothing in time";
    case RefusedConnection::kNotTls:
      return "it does not speak TLS, but this port requires it";
    case RefusedConnection::kOldTls:
      return "its TLS version is older than --tls-min-version";
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Bind(const std::string& address) {
  const auto failed = [&](absl::string_view cause) {
    return absl::UnavailableError("cannot listen on " + address + ": " + std::string(cause));
  };
  auto acceptor = std::unique_ptr<Acceptor>(new Acceptor);
  acceptor->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  acceptor->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  acceptor->reserve_ = OpenReserve();
  if (acceptor->epoll_ < 0 || acceptor->wake_ < 0 || acceptor->reserve_ < 0) {
    return failed(std::strerror(errno));
  }
  auto sockets = ListeningSockets::Open(address);
  if (!sockets.ok()) return failed(sockets.status().message());
  acceptor->port_ = sockets->port();
  acceptor->sockets_.emplace(*std::move(sockets));
  return acceptor;
}

Acceptor::~Acceptor() {
  StopListening();
  Stop();
  for (const int descriptor : {epoll_, wake_, reserve_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

void Acceptor::Start(Sink* sink, Connections* connections, ConnectionWatch* watch, Metrics* metrics,
                     std::optional<TlsVersion> least) {
  least_ = least;
  sink_ = sink;
  connections_ = connections;
  watch_ = watch;
  metrics_ = metrics;
  Watch(epoll_, wake_);
  for (const int listener : sockets_->descriptors()) Watch(epoll_, listener);
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::StopListening() {
  if (!listening_.exchange(false)) return;
  // The thread may be about to accept from them, so it closes them itself.
  if (thread_.joinable()) {
    Wake();
  } else {
    sockets_.reset();
  }
}

void Acceptor::Stop() {
  stopped_ = true;
  if (!thread_.joinable()) return;
  Wake();
  thread_.join();
  if (!listening_) sockets_.reset();  // the thread may have ended before it did
  while (!greeting_.empty()) DropGreeting(greeting_.begin()->first);
}

void Acceptor::Wake() {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof(one)));
}

void Acceptor::Run() {
  std::array<epoll_event, 8> events;
  while (!stopped_) {
    const int count = epoll_wait(epoll_, events.data(), events.size(), -1);
    if (!listening_) sockets_.reset();
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      const int descriptor = event.data.fd;
      if (descriptor == wake_) {
        uint64_t times;
        static_cast<void>(!read(wake_, &times, sizeof(times)));
      } else if (greeting_.contains(descriptor)) {
        Examine(descriptor, (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
      } else if (listening_) {
        AcceptAll(descriptor);
      }
    }
  }
}

void Acceptor::AcceptAll(int listener) {
  while (listening_) {
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
          std::this_thread::sleep_for(milliseconds(kOutOfDescriptorsMs));
          return;
        case EAGAIN:
        case EBADF:  // this and the next two: it is no listening socket any more
        case EINVAL:
        case ENOTSOCK:
          return;
        default:
          continue;  // EINTR, or one connection's own failure: ECONNABORTED and the like
      }
    }
    if (from.ss_family != AF_UNIX) {
      const int on = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kStuckPeerMs, sizeof(kStuckPeerMs));
    }
    const auto added = connections_->Add(socket, from);
    if (const auto* cause = std::get_if<RefusedConnection>(&added)) {
      Refuse(*cause);  // count it before the peer can see it
      close(socket);
      continue;
    }
    const auto& admitted = std::get<Connections::Admitted>(added);
    watch_->Add(admitted);
    if (!least_.has_value()) {
      HandOver(socket, listener, *admitted.connection);
      continue;
    }
    greeting_.emplace(socket, Greeting{listener, admitted.connection});
    // Told once for each arrival, since looking leaves the bytes where they are. Of the end, too: a
    // socket with unread bytes stays readable, so reading does not tell it.
    Watch(epoll_, socket, EPOLLIN | EPOLLRDHUP | EPOLLET);
  }
}

void Acceptor::HandOver(int socket, int listener, Connection& connection) {
  connection.HandedOver();
  Sink::NewConnectionParameters parameters;
  parameters.listener_fd = listener;
  parameters.fd = socket;
  sink_->HandleNewConnection(&parameters);
}

void Acceptor::Examine(int socket, bool ended) {
  std::array<std::byte, kMaxHelloBytes> bytes;
  const ssize_t size = recv(socket, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return DropGreeting(socket);  // gone, or closed for its silence
  switch (InspectHello(std::span(bytes).first(static_cast<size_t>(size)), *least_)) {
    case Hello::kIncomplete:
      if (ended) DropGreeting(socket);  // there will be no more of it
      return;
    case Hello::kNotTls:
      return TurnAway(socket, RefusedConnection::kNotTls);
    case Hello::kTooOld: {
      Refuse(RefusedConnection::kOldTls);  // count it before the peer can see it
      // What is unread when a socket closes resets the connection, and the alert would be lost.
      static_cast<void>(!recv(socket, bytes.data(), static_cast<size_t>(size), MSG_DONTWAIT));
      const auto alert = TooOldAlert();
      static_cast<void>(!send(socket, alert.data(), alert.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      return DropGreeting(socket);
    }
    case Hello::kAcceptable:
      break;
  }
  epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
  const auto greeting = greeting_.extract(socket);
  HandOver(socket, greeting.mapped().listener, *greeting.mapped().connection);
}

void Acceptor::TurnAway(int socket, RefusedConnection cause) {
  Refuse(cause);
  DropGreeting(socket);
}

void Acceptor::DropGreeting(int socket) {
  // The watch learns of it, and forgets it: there is a second descriptor, because of which closing
  // this one would leave the socket in our epoll.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
  greeting_.extract(socket).mapped().connection->Close();
  close(socket);
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
  metrics_->ConnectionRefused(cause);
  ++refused_since_warning_;
  const steady_clock::time_point now = steady_clock::now();
  if (now - warned_ < kWarnEvery) return;
  LogWarning("connection refused", {{"port", port_},
                                    {"cause", NameOf(cause)},
                                    {"turned_away", refused_since_warning_},
                                    {"open", connections_->open()}});
  warned_ = now;
  refused_since_warning_ = 0;
}

}  // namespace castor::server

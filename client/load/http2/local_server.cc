#include "client/load/http2/local_server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

#include "client/load/base/errors.h"
#include "client/load/http2/address.h"

namespace castor::load {
namespace {

// gRPC's prefix of an empty message, which is an answer of every type.
constexpr std::string_view kNothing("\0\0\0\0\0", 5);

void Watch(int epoll, int socket, uint32_t events, int operation) {
  epoll_event event{.events = events, .data = {.fd = socket}};
  epoll_ctl(epoll, operation, socket, &event);
}

}  // namespace

LocalServer::LocalServer(Handler handler, const ServerLimits& limits, const std::string& target)
    : handler_(std::move(handler)), limits_(limits) {
  static std::atomic<int> count = 0;
  target_ = !target.empty() ? target
                            : "unix-abstract:castor-load-" + std::to_string(getpid()) + "-" +
                                  std::to_string(++count);
  const Address address = Resolve(target_).front();
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (listener_ < 0 || stop_ < 0 || epoll_ < 0 ||
      bind(listener_, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0 ||
      listen(listener_, SOMAXCONN) != 0) {
    throw ServerError("cannot listen on " + target_);
  }
  for (const int own : {listener_, stop_}) Watch(epoll_, own, EPOLLIN, EPOLL_CTL_ADD);
  thread_ = std::thread([this] { Serve(); });
}

LocalServer::~LocalServer() {
  const uint64_t one = 1;
  (void)!write(stop_, &one, sizeof(one));
  thread_.join();
  for (const int own : {listener_, stop_, epoll_}) close(own);
}

void LocalServer::Echo(ServerConnection& connection, int32_t stream, std::string_view,
                       std::string_view) {
  connection.SubmitMessage(stream, std::string(kNothing));
}

void LocalServer::Accept() {
  for (;;) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) return;
    auto& connection = clients_[socket].connection;
    connection = std::make_unique<ServerConnection>(
        socket, limits_,
        [this, &connection](int32_t stream, std::string_view path, std::string_view body) {
          handler_(*connection, stream, path, body);
        });
    Watch(epoll_, socket, EPOLLIN | EPOLLOUT, EPOLL_CTL_ADD);
  }
}

void LocalServer::Serve() {
  pthread_setname_np(pthread_self(), "server");
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = epoll_wait(epoll_, events.data(), events.size(), -1);
    for (int i = 0; i < count; ++i) {
      const int ready = events[static_cast<size_t>(i)].data.fd;
      if (ready == stop_) return;
      if (ready == listener_) {
        Accept();
        continue;
      }
      const auto found = clients_.find(ready);
      ServerConnection& connection = *found->second.connection;
      if (!connection.Read() || !connection.Flush()) {
        clients_.erase(found);  // which closes it, and so ends the watch
        continue;
      }
      const bool blocked = connection.blocked();
      if (blocked == std::exchange(found->second.watched_for_room, blocked)) continue;
      Watch(epoll_, ready, blocked ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
    }
  }
}

}  // namespace castor::load

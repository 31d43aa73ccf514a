#include "tests/bench/load_tester/scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

namespace castor::bench {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr size_t kLateMicroseconds = 100'000;

int64_t Time(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

int OrThrow(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

}  // namespace

ScriptedServer::ScriptedServer(const ScriptedServerOptions& options)
    : options_(options),
      tls_(options.tls.certificate_file.empty() ? load::SslContext(nullptr, nullptr)
                                                : load::MakeServerContext(options.tls)),
      answers_(options.script.service_ns),
      script_(options.script),
      late_(kLateMicroseconds + 1) {
  epoll_ = OrThrow(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  // An absolute timer of its own: it has no slack, and epoll's timeout has.
  timer_ = OrThrow(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create");
  stop_ = OrThrow(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd");
  listener_ = OrThrow(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket");
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (inet_pton(AF_INET, options.address.c_str(), &address.sin_addr) != 1) {
    throw std::system_error(EINVAL, std::generic_category(),
                            options.address + " is no IPv4 address");
  }
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  OrThrow(bind(listener_, generic, size), "bind");
  OrThrow(listen(listener_, SOMAXCONN), "listen");
  OrThrow(getsockname(listener_, generic, &size), "getsockname");
  port_ = ntohs(address.sin_port);
  for (const int own : {listener_, timer_, stop_}) Watch(own, EPOLLIN, EPOLL_CTL_ADD);

  const int64_t unix_ns = Time(CLOCK_REALTIME);
  begin_unix_ns_ = options.begin_unix_ns != 0 ? options.begin_unix_ns : unix_ns;
  begin_monotonic_ns_ = Time(CLOCK_MONOTONIC) + begin_unix_ns_ - unix_ns;
}

ScriptedServer::~ScriptedServer() {
  for (const int own : {listener_, timer_, stop_, epoll_}) close(own);
}

int64_t ScriptedServer::Now() const { return Time(CLOCK_MONOTONIC) - begin_monotonic_ns_; }

void ScriptedServer::Watch(int socket, uint32_t events, int operation) const {
  epoll_event event{.events = events, .data = {.fd = socket}};
  OrThrow(epoll_ctl(epoll_, operation, socket, &event), "epoll_ctl");
}

void ScriptedServer::Accept() {
  for (;;) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) return;
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    Client& client = clients_[socket];
    client.number = ++connections_;
    client.connection = std::make_unique<load::ServerConnection>(
        socket, load::ServerLimits{.keep_bodies = options_.one_token, .tls = tls_.get()},
        [this, socket](int32_t stream, std::string_view path, std::string_view body) {
          OnRequest(socket, stream, MethodOf(path), body);
        });
    Watch(socket, EPOLLIN, EPOLL_CTL_ADD);
    MarkDirty(socket, client);  // its settings
  }
}

void ScriptedServer::OnRequest(int socket, int32_t stream, Method method, std::string_view body) {
  Client& client = clients_.find(socket)->second;
  MarkDirty(socket, client);
  if (method == Method::kUnknown) {
    client.connection->SubmitStatus(stream, "12", "the scripted server has no such method", "");
    return;
  }
  if (method == Method::kServerInfo) {
    client.connection->SubmitMessage(stream, answers_.Fixed(method, false));
    return;
  }
  ++counts_.came;
  if (options_.discard) {
    ++counts_.good;
    client.connection->SubmitMessage(stream, answers_.Fixed(method, false));
    return;
  }
  const int64_t now = Now();
  const Departure departure = script_.Next(now);
  if (departure.answer == Answer::kNone) {
    ++counts_.silent;
    return;
  }
  Due due{.at_ns = departure.at_ns,
          .order = static_cast<uint64_t>(counts_.came),
          .socket = socket,
          .connection = client.number,
          .stream = stream,
          .method = method,
          .answer = departure.answer,
          .message = {}};
  if (options_.one_token && method == Method::kAttend) {
    due.message = Answers::OneToken(body, departure.answer == Answer::kWrong);
  }
  due_.push(std::move(due));
}

void ScriptedServer::Send(Client& client, const Due& due) {
  switch (due.answer) {
    case Answer::kRefused:
      ++counts_.refused;
      client.connection->SubmitStatus(due.stream, "8", "refused by the script", answers_.refusal());
      return;
    case Answer::kGood:
      ++counts_.good;
      break;
    case Answer::kWrong:
      ++counts_.wrong;
      break;
    case Answer::kNone:
      return;
  }
  client.connection->SubmitMessage(
      due.stream,
      due.message.empty() ? answers_.Fixed(due.method, due.answer == Answer::kWrong) : due.message);
}

void ScriptedServer::SendDue() {
  while (!due_.empty()) {
    const Due& due = due_.top();
    const int64_t late = Now() - due.at_ns;
    if (late < 0) return;
    ++late_[std::min(static_cast<size_t>(late / 1000), kLateMicroseconds)];
    counts_.late_max = std::max(counts_.late_max, late);
    const auto client = clients_.find(due.socket);
    if (client != clients_.end() && client->second.number == due.connection) {
      Send(client->second, due);
      MarkDirty(due.socket, client->second);
    }
    due_.pop();
  }
}

void ScriptedServer::SetTimer() {
  if (due_.empty() || due_.top().at_ns == timer_at_ns_) return;
  timer_at_ns_ = due_.top().at_ns;
  const int64_t at = timer_at_ns_ + begin_monotonic_ns_;
  itimerspec spec{};
  spec.it_value = {.tv_sec = at / kSecond, .tv_nsec = at % kSecond};
  OrThrow(timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr), "timerfd_settime");
}

void ScriptedServer::MarkDirty(int socket, Client& client) {
  if (std::exchange(client.dirty, true)) return;
  dirty_.push_back(socket);
}

void ScriptedServer::FlushAll() {
  for (const int socket : dirty_) {
    const auto found = clients_.find(socket);
    if (found == clients_.end()) continue;
    Client& client = found->second;
    client.dirty = false;
    if (!client.connection->Flush()) {
      clients_.erase(found);  // which closes it, and so ends the watch
      continue;
    }
    const bool blocked = client.connection->blocked();
    if (blocked == std::exchange(client.watched_for_room, blocked)) continue;
    Watch(socket, blocked ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
  }
  dirty_.clear();
}

void ScriptedServer::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    SendDue();
    FlushAll();
    SetTimer();
    const int count = epoll_wait(epoll_, events.data(), events.size(), -1);
    if (count < 0 && errno == EINTR) continue;
    OrThrow(count, "epoll_wait");
    for (int i = 0; i < count; ++i) {
      const int ready = events[static_cast<size_t>(i)].data.fd;
      if (ready == stop_) return;
      if (ready == listener_) {
        Accept();
      } else if (ready == timer_) {
        uint64_t expirations;
        (void)!read(timer_, &expirations, sizeof(expirations));
        timer_at_ns_ = -1;
      } else if (const auto client = clients_.find(ready); client != clients_.end()) {
        MarkDirty(ready, client->second);
        if (!client->second.connection->Read()) clients_.erase(client);
      }
    }
  }
}

void ScriptedServer::Stop() {
  const uint64_t one = 1;
  (void)!write(stop_, &one, sizeof(one));
}

ScriptedServerCounts ScriptedServer::Counts() const {
  ScriptedServerCounts counts = counts_;
  int64_t all = 0;
  for (const int64_t count : late_) all += count;
  int64_t below = 0;
  for (size_t us = 0; us < late_.size(); ++us) {
    const int64_t with = below + late_[us];
    const auto at = static_cast<int64_t>(us) * 1000;
    if (below * 2 < all && with * 2 >= all) counts.late_p50 = at;
    if (below * 100 < all * 99 && with * 100 >= all * 99) counts.late_p99 = at;
    below = with;
  }
  return counts;
}

}  // namespace castor::bench

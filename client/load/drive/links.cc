#include "client/load/drive/links.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "client/load/base/errors.h"

namespace castor::load {
namespace {

constexpr std::chrono::milliseconds kFirstPause{20}, kLongestPause{1000};
// Who sleeps wakes late. The last of a wait is therefore spent looking at the clock, as long as
// that takes no more than a twentieth of all time.
constexpr std::chrono::microseconds kWatch{200};
constexpr int kWatchedPart = 20;
constexpr uint64_t kTimer = ~uint64_t{0}, kWake = kTimer - 1;  // keys of epoll; others are links

int OrThrow(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

}  // namespace

Links::Links(const std::vector<std::string>& endpoints, int each, LinkOptions options)
    : spread_(options.spread) {
  if (options.tls) tls_.emplace(*options.tls);
  epoll_ = OrThrow(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  // A timer of its own: it wakes to the microsecond, and epoll's timeout does not.
  timer_ = OrThrow(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create");
  wake_ = OrThrow(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd");
  for (const auto& [own, key] : {std::pair{timer_, kTimer}, {wake_, kWake}}) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = key}};
    OrThrow(epoll_ctl(epoll_, EPOLL_CTL_ADD, own, &event), "epoll_ctl");
  }
  auto rows = static_cast<size_t>(each);
  for (const std::string& target : endpoints) {
    auto endpoint = std::make_unique<Endpoint>(
        target, options.resolve, [this] { Wake(); }, options.spread);
    // As gRPC does.
    if (tls_ && !options.tls->server_name.empty()) {
      endpoint->SetServerName(options.tls->server_name);
    }
    rows = std::max(rows, endpoint->servers());
    endpoints_.push_back(std::move(endpoint));
  }
  links_.resize(endpoints.size() * rows);
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i].endpoint = i % endpoints_.size();
    Connect(i);
  }
  Spread();
}

Links::~Links() {
  links_.clear();
  endpoints_.clear();  // their threads wake this
  for (const int own : {timer_, wake_, epoll_}) close(own);
}

void Links::Watch(const ClientConnection& connection, uint64_t key, uint32_t events,
                  int operation) {
  epoll_event event{.events = events, .data = {.u64 = key}};
  OrThrow(epoll_ctl(epoll_, operation, connection.socket(), &event), "epoll_ctl");
}

void Links::Connect(size_t index) {
  Link& link = links_[index];
  if (std::exchange(link.try_at, std::nullopt).has_value()) --broken_;
  if (tls_) {
    if (const absl::Status status = tls_->Refresh(); !status.ok()) {
      link.failure = std::string(status.message());
      link.hopeless = true;
      return Postpone(link);
    }
  }
  Endpoint& endpoint = *endpoints_[link.endpoint];
  endpoint.Refresh();
  link.current.address = endpoint.Pick(Clock::now());
  link.current.connection = std::make_unique<ClientConnection>(
      link.current.address, ended_, tls_ ? tls_->get() : nullptr, endpoint.certified());
  link.current.events = EPOLLIN | EPOLLOUT;
  if (!link.current.connection->failed()) {
    Watch(*link.current.connection, index, link.current.events, EPOLL_CTL_ADD);
  }
  MarkDirty(index);
}

void Links::Postpone(Link& link) {
  link.pause = std::clamp(link.pause * 2, kFirstPause, kLongestPause);
  link.try_at = Clock::now() + link.pause;
  ++broken_;
}

void Links::Leave(Link& link, bool failed) {
  endpoints_[link.endpoint]->Release(link.current.address);
  if (failed) {
    link.current.connection = nullptr;
  } else {
    link.leaving.push_back(std::move(link.current));
  }
}

void Links::Mend(size_t index) {
  Link& link = links_[index];
  std::erase_if(link.leaving, [](const Watched& old) {
    return old.connection->failed() || old.connection->idle();
  });
  if (link.current.connection == nullptr || link.current.connection->open()) {
    if (link.current.connection != nullptr && link.current.connection->ready()) link.pause = {};
    return;
  }
  const bool failed = link.current.connection->failed();
  link.failure = failed ? link.current.connection->failure() : "the server asked to leave";
  link.hopeless = failed && link.current.connection->hopeless();
  // Who has answered and asks to leave takes the next connection at once. One that was idle has
  // failed by now: it was ended.
  const bool renewed =
      link.current.connection->answered() && (!failed || link.current.connection->leaving());
  Endpoint& endpoint = *endpoints_[link.endpoint];
  if (renewed) {
    endpoint.Resolve();
  } else {
    endpoint.Failed(link.current.address, Clock::now());
  }
  Leave(link, failed);
  if (renewed) return Connect(index);
  Postpone(link);
}

size_t Links::Choose(size_t index) {
  // More than once: what replaces a connection may have failed already.
  Link& own = links_[index];
  while (own.current.connection != nullptr && !own.current.connection->open()) Mend(index);
  if (own.current.connection != nullptr && own.current.connection->ready()) return index;
  // As gRPC's round robin: a server that is not up does not get calls while others are.
  for (size_t i = 1; i < links_.size() / endpoints_.size(); ++i) {
    const size_t other = (index + i * endpoints_.size()) % links_.size();
    const ClientConnection* connection = links_[other].current.connection.get();
    if (connection != nullptr && connection->ready() && connection->open()) return other;
  }
  return index;
}

void Links::Start(UnaryCall& call) {
  const size_t index = Choose(turn_++ % links_.size());
  Link& link = links_[index];
  call.link = index;
  if (link.current.connection == nullptr) {
    call.done = Clock::now();
    call.status = {grpc::StatusCode::UNAVAILABLE,
                   "no connection to " + endpoints_[link.endpoint]->target() + ": " + link.failure};
    ended_.push_back(&call);
    return;
  }
  link.current.connection->Start(call);
  MarkDirty(index);
}

void Links::Spread() {
  const auto now = Clock::now();
  spread_at_ = std::nullopt;
  for (const auto& endpoint : endpoints_) {
    endpoint->Refresh();
    if (endpoint->servers() > 1) spread_at_ = now + spread_;
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    const ClientConnection* connection = link.current.connection.get();
    if (connection == nullptr || !connection->ready()) continue;
    if (!endpoints_[link.endpoint]->IsCrowded(link.current.address, now)) continue;
    Leave(link, /*failed=*/false);
    Connect(i);
  }
}

void Links::Cancel(UnaryCall& call, grpc::Status status) {
  ClientConnection::Cancel(call, std::move(status));
  MarkDirty(call.link);
}

void Links::MarkDirty(size_t index) {
  if (std::exchange(links_[index].dirty, true)) return;
  dirty_.push_back(index);
}

void Links::FlushOne(size_t index, Watched& one) {
  one.connection->Flush();
  if (one.connection->failed()) return;
  const uint32_t events = EPOLLIN | (one.connection->blocked() ? EPOLLOUT : 0U);
  if (events != std::exchange(one.events, events)) {
    Watch(*one.connection, index, events, EPOLL_CTL_MOD);
  }
  if (one.connection->unsent() && !one.connection->blocked()) {
    more_ = true;
    MarkDirty(index);
  }
}

void Links::FlushLink(size_t index) {
  Link& link = links_[index];
  link.dirty = false;
  for (Watched& one : link.leaving) FlushOne(index, one);
  if (link.current.connection != nullptr) FlushOne(index, link.current);
  Mend(index);
}

void Links::Flush() {
  more_ = false;
  flushing_.swap(dirty_);
  for (const size_t index : flushing_) FlushLink(index);
  flushing_.clear();
}

void Links::SetTimer(Clock::time_point time) {
  if (time == timer_at_) return;
  timer_at_ = time;
  const int64_t at = std::max<int64_t>(1, time.time_since_epoch() / std::chrono::nanoseconds(1));
  itimerspec spec{};
  spec.it_value = {.tv_sec = at / 1'000'000'000, .tv_nsec = at % 1'000'000'000};
  OrThrow(timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr), "timerfd_settime");
}

void Links::Wait(std::optional<Clock::time_point> until) {
  for (size_t i = 0; broken_ > 0 && i < links_.size(); ++i) {
    const std::optional<Clock::time_point> try_at = links_[i].try_at;
    if (!try_at.has_value()) continue;
    if (*try_at <= Clock::now()) {
      Connect(i);
    } else if (!until.has_value() || *try_at < *until) {
      until = try_at;
    }
  }
  if (woken_ || (spread_at_.has_value() && *spread_at_ <= Clock::now())) {
    woken_ = false;
    Spread();
  }
  if (spread_at_.has_value() && (!until.has_value() || *spread_at_ < *until)) until = spread_at_;
  if (!dirty_.empty() && !more_) Flush();
  std::array<epoll_event, 64> events;
  const auto look = [&](int patience) {
    return epoll_wait(epoll_, events.data(), events.size(), patience);
  };
  auto now = Clock::now();
  int count = 0;
  if (more_ || !ended_.empty() || (until.has_value() && *until <= now)) {
    count = look(0);
  } else if (const bool watch = watched_ * kWatchedPart <= now - begun_;
             watch && until.has_value() && *until - kWatch <= now) {
    const auto begin = now;
    while ((count = look(0)) == 0 && now < *until) now = Clock::now();
    watched_ += now - begin;
  } else {
    if (until.has_value()) SetTimer(watch ? *until - kWatch : *until);
    count = look(-1);
  }
  if (count < 0 && errno == EINTR) return;
  OrThrow(count, "epoll_wait");
  for (int i = 0; i < count; ++i) {
    const uint64_t key = events[static_cast<size_t>(i)].data.u64;
    if (key == kTimer || key == kWake) {
      uint64_t times = 0;
      (void)!read(key == kTimer ? timer_ : wake_, &times, sizeof(times));
      if (key == kTimer) timer_at_ = {};
      if (key == kWake) woken_ = true;
      continue;
    }
    Link& link = links_[key];
    for (const Watched& old : link.leaving) old.connection->Read();
    if (link.current.connection != nullptr) link.current.connection->Read();
    MarkDirty(key);
  }
}

void Links::Wake() const {
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof(one));
}

void Links::AwaitAll(std::chrono::seconds patience) {
  const auto until = Clock::now() + patience;
  for (const Link& link : links_) {
    while (link.current.connection == nullptr || !link.current.connection->ready()) {
      const bool hopeless = link.current.connection == nullptr && link.hopeless;
      if (hopeless || Clock::now() >= until) {
        const std::string& target = endpoints_[link.endpoint]->target();
        if (hopeless) throw ServerError("cannot connect to " + target + ": " + link.failure);
        throw ServerError("cannot connect to " + target + ": is the server running there? " +
                          "Set --server" + (link.failure.empty() ? "" : " (" + link.failure + ")"));
      }
      Flush();
      Wait(until);
    }
  }
}

}  // namespace castor::load

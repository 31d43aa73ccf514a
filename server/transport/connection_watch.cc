#include "server/transport/connection_watch.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <chrono>

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often to look at what arrives.
constexpr int kLookEveryMs = 100;

// Connections have their numbers, from 1 on.
constexpr uint64_t kWakeTag = 0;

void AddTo(int epoll, int descriptor, uint32_t events, uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

}  // namespace

ConnectionWatch::ConnectionWatch(Connections& connections)
    : connections_(connections),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!ok()) return;
  AddTo(epoll_, wake_, EPOLLIN, kWakeTag);
  thread_ = std::thread([this] { Run(); });
}

ConnectionWatch::~ConnectionWatch() {
  stopped_ = true;
  if (thread_.joinable()) {
    Wake();
    thread_.join();
  }
  if (epoll_ >= 0) close(epoll_);
  if (wake_ >= 0) close(wake_);
}

void ConnectionWatch::Add(const Connections::Admitted& admitted) {
  // No event is requested: epoll reports the end of a connection in any case. One-shot, because it
  // would report an error that nobody fetches again and again.
  AddTo(epoll_, admitted.descriptor, EPOLLET, admitted.connection->id());
  Wake();
}

void ConnectionWatch::Wake() {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof(one)));
}

void ConnectionWatch::Run() {
  std::array<epoll_event, 64> events;
  steady_clock::time_point looked{};
  while (!stopped_) {
    const bool anyone = connections_.open() > 0;
    const int count = epoll_wait(epoll_, events.data(), events.size(), anyone ? kLookEveryMs : -1);
    const steady_clock::time_point now = steady_clock::now();
    if (anyone && now - looked >= milliseconds(kLookEveryMs)) {
      connections_.Look();
      connections_.CloseSilent(now);
      connections_.CloseLingering(now);
      looked = now;
    }
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
      if (tag == kWakeTag) {
        uint64_t times;
        static_cast<void>(!read(wake_, &times, sizeof(times)));
      } else {
        connections_.Remove(tag);
      }
    }
    // Nobody looks again while nobody is connected.
    if (anyone && connections_.open() == 0) connections_.Look();
  }
}

}  // namespace castor::server

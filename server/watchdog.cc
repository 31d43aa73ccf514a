#include "server/watchdog.h"

#include <algorithm>
#include <utility>

namespace castor::server {

using std::chrono::milliseconds;

bool StallMeter::Look(const Progress& progress, TimePoint now) {
  const bool first = last_look_ == TimePoint::min();
  const bool still = !first && progress.busy && progress.beats == last_.beats;
  without_progress_ =
      still ? without_progress_ + std::min(now - last_look_, most_per_look_) : Duration(0);
  last_ = progress;
  last_look_ = now;
  return without_progress_ >= limit_;
}

Watchdog::Watchdog(const Engine& engine, milliseconds limit, std::function<void(bool)> changed)
    : engine_(engine), changed_(std::move(changed)), thread_([this, limit] { Run(limit); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  stop_.NotifyAll();
  thread_.join();
}

void Watchdog::Run(milliseconds limit) {
  const milliseconds between = std::clamp(limit / 8, milliseconds(5), milliseconds(5000));
  StallMeter meter(limit, 2 * between);
  bool stalled = false;
  while (true) {
    const bool now_stalled = meter.Look(engine_.progress(), std::chrono::steady_clock::now());
    if (now_stalled != stalled) changed_(now_stalled);
    stalled = now_stalled;
    const TimePoint next = std::chrono::steady_clock::now() + between;
    MutexLock lock(mu_);
    while (!stopped_ && stop_.WaitUntil(mu_, next)) {
    }
    if (stopped_) return;
  }
}

}  // namespace castor::server

#include "server/lifecycle/lifecycle.h"

#include <algorithm>

namespace castor::server {

bool Lifecycle::EnterCall() {
  MutexLock lock(mu_);
  ++calls_;
  return !refusing_;
}

void Lifecycle::LeaveCall() {
  const TimePoint now = std::chrono::steady_clock::now();
  MutexLock lock(mu_);
  last_left_ = now;
  if (--calls_ == 0) all_left_.NotifyAll();
}

int64_t Lifecycle::calls_in_flight() const {
  MutexLock lock(mu_);
  return calls_;
}

void Lifecycle::BeginRefusing() {
  MutexLock lock(mu_);
  refusing_ = true;
}

bool Lifecycle::WaitUntilQuiet(std::chrono::milliseconds quiet, TimePoint deadline) {
  MutexLock lock(mu_);
  const TimePoint asked = std::chrono::steady_clock::now();
  while (true) {
    const TimePoint now = std::chrono::steady_clock::now();
    const TimePoint quiet_at = std::max(asked, last_left_) + quiet;
    if (calls_ == 0 && now >= quiet_at) return true;
    if (now >= deadline) return false;
    all_left_.WaitUntil(mu_, calls_ > 0 ? deadline : std::min(deadline, quiet_at));
  }
}

void Lifecycle::RequestStop(StopCause cause) {
  MutexLock lock(mu_);
  if (stop_requested_) return;
  stop_requested_ = true;
  cause_ = cause;
  stops_.NotifyAll();
}

StopCause Lifecycle::WaitForStop() {
  MutexLock lock(mu_);
  while (!stop_requested_) stops_.Wait(mu_);
  return cause_;
}

}  // namespace castor::server

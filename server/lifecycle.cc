#include "server/lifecycle.h"

namespace castor::server {

bool Lifecycle::EnterCall() {
  MutexLock lock(mu_);
  ++calls_;
  return !refusing_;
}

void Lifecycle::LeaveCall() {
  MutexLock lock(mu_);
  if (--calls_ == 0) changed_.NotifyAll();
}

int64_t Lifecycle::calls_in_flight() const {
  MutexLock lock(mu_);
  return calls_;
}

void Lifecycle::BeginRefusing() {
  MutexLock lock(mu_);
  refusing_ = true;
}

bool Lifecycle::WaitUntilIdle(TimePoint deadline) {
  MutexLock lock(mu_);
  while (calls_ > 0) {
    if (!changed_.WaitUntil(mu_, deadline)) return calls_ == 0;
  }
  return true;
}

void Lifecycle::RequestStop(StopCause cause) {
  MutexLock lock(mu_);
  if (stop_requested_) return;
  stop_requested_ = true;
  cause_ = cause;
  changed_.NotifyAll();
}

StopCause Lifecycle::WaitForStop() {
  MutexLock lock(mu_);
  while (!stop_requested_) changed_.Wait(mu_);
  return cause_;
}

}  // namespace castor::server

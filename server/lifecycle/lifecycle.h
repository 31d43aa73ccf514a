// Whether the server accepts calls, how many are in flight, and why it stops.
//
//   serving --BeginRefusing--> refusing        one way; calls in flight run on in both
//
// Any thread may call anything. Takes no other lock while it holds its own, and calls nothing.
#pragma once

#include <chrono>
#include <cstdint>

#include "engine/base/mutex.h"

namespace castor::server {

// Why the server should stop. The first cause stands.
enum class StopCause {
  kRequested,    // a signal, or the owner
  kEngineFault,  // the device does not recover
};

class Lifecycle {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Lifecycle() = default;
  Lifecycle(const Lifecycle&) = delete;
  Lifecycle& operator=(const Lifecycle&) = delete;

  // Counts a call in, from its handler's first line to its last byte. Returns whether the call may
  // proceed. If not, it must be refused with DRAINING; it is counted all the same.
  bool EnterCall();
  void LeaveCall();
  int64_t calls_in_flight() const;

  // From now on EnterCall returns false.
  void BeginRefusing();

  // Waits until no call is in flight and none has come or gone for `quiet`; false if `deadline`
  // came first.
  bool WaitUntilQuiet(std::chrono::milliseconds quiet, TimePoint deadline);

  // Asks the server's owner to stop it; WaitForStop returns the first cause.
  void RequestStop(StopCause cause);
  StopCause WaitForStop();

 private:
  mutable Mutex mu_;
  CondVar all_left_;
  CondVar stops_;  // apart, or every call that leaves wakes the owner
  bool refusing_ ABSL_GUARDED_BY(mu_) = false;
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  TimePoint last_left_ ABSL_GUARDED_BY(mu_);
  bool stop_requested_ ABSL_GUARDED_BY(mu_) = false;
  StopCause cause_ ABSL_GUARDED_BY(mu_) = StopCause::kRequested;
};

}  // namespace castor::server

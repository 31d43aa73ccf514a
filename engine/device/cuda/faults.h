// Turns errors of LibTorch and CUDA into Status, and remembers whether the device still works.
// Everything in the module that may throw runs inside Faults::Guard. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"

namespace castor {

class Faults {
 public:
  // `usable` asks the device whether it still accepts work: after a fault that it does not recover
  // from, every CUDA call fails until the process ends.
  explicit Faults(std::function<bool()> usable) : usable_(std::move(usable)) {}

  bool healthy() const { return healthy_.load(std::memory_order_relaxed); }

  // Runs `body`, which returns an absl::Status. OUT_OF_MEMORY when the device's or the host's
  // memory ran out, INTERNAL for whatever else it throws.
  template <typename Body>
  absl::Status Guard(Body&& body) {
    try {
      return std::forward<Body>(body)();
    } catch (...) {
      return FromCurrentException();
    }
  }

  // The same for the return code of a CUDA call, an int so that users need no CUDA header; `call`
  // names it. Code 0 is OK.
  absl::Status FromCode(int code, const char* call);

 private:
  absl::Status FromCurrentException();
  absl::Status Internal(const char* message);

  const std::function<bool()> usable_;
  std::atomic<bool> healthy_{true};
};

}  // namespace castor

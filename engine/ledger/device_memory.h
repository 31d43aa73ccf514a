// A request's use of the device, in time and memory. The device's memory has a budget of its own,
// for the models' weights and for what batches need while they run: workspace, activations, and
// copies of tensors on a device with its own memory. Waiting requests take none of it. Staging
// memory has another budget (budgets.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/attention/problem.h"
#include "engine/device/device.h"

namespace castor {

// How long a request will occupy the device, predicted before it runs (forecast/forecast.h).
struct PredictedTime {
  double batch_us = 0;  // the fixed time of its batch, whatever the number of requests
  double own_us = 0;    // the time of the request itself

  // The learned factor in both. Divided by it, they are the prediction by prices alone.
  double correction = 1;

  double alone_us() const { return batch_us + own_us; }
};

// Most predictions are within this factor of the measured time.
inline constexpr double kPredictionMargin = 1.25;

// The bytes that a request or a batch needs while it runs. A number that is too large to count,
// also as a sum, is Count::kMost.
struct MemoryNeed {
  int64_t own = 0;     // adds up over the requests of a batch
  int64_t shared = 0;  // scratch that a batch needs once, however many requests share it
  // The part of `own` that an encoder's layers hold between kernels. The rest is workspace.
  int64_t activations = 0;

  int64_t bytes() const { return (attention::Count(own) + shared).value(); }

  // The need of a batch of both.
  friend MemoryNeed operator+(const MemoryNeed& a, const MemoryNeed& b) {
    return {.own = (attention::Count(a.own) + b.own).value(),
            .shared = std::max(a.shared, b.shared),
            .activations = (attention::Count(a.activations) + b.activations).value()};
  }
  // Enough for either.
  friend MemoryNeed Most(const MemoryNeed& a, const MemoryNeed& b) {
    return {.own = std::max(a.own, b.own),
            .shared = std::max(a.shared, b.shared),
            .activations = std::max(a.activations, b.activations)};
  }
};

// The value of EngineOptions::max_device_bytes where that is 0: on the CPU half of the memory; on a
// GPU its memory less a reserve for its libraries; no bound if the device does not know its memory.
inline int64_t AutomaticDeviceBytes(const Device& device) {
  const int64_t memory = device.info().memory_bytes;
  if (memory <= 0) return std::numeric_limits<int64_t>::max();
  if (!device.copies_tensors()) return memory / 2;
  // For the context, the libraries' workspaces, and fragmentation.
  constexpr int64_t kMinReserve = int64_t{1} << 30;
  constexpr int64_t kReserveFraction = 16;
  return memory - std::min(memory / 2, std::max(kMinReserve, memory / kReserveFraction));
}

// The budget, and the weights that take part of it. Set before the first request and then constant.
class DeviceBudget {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  void SetMost(int64_t bytes) { most_ = bytes; }

  int64_t most() const { return most_; }
  int64_t weights() const { return weights_; }

  // The bytes that the weights leave for runs.
  int64_t for_runs() const { return std::max<int64_t>(0, most_ - weights_); }

  // Takes room for a model's weights. If they do not fit next to the others, takes nothing and
  // returns false.
  bool TakeWeights(int64_t bytes) {
    if (bytes > most_ - weights_) return false;
    weights_ += bytes;
    return true;
  }

 private:
  int64_t most_ = kNone;
  int64_t weights_ = 0;
};

}  // namespace castor

// What a request takes of the device, in time and memory. The memory is a budget of its own: the
// models' weights, and what batches need while they run (workspace, activations, and copies of
// tensors where the device has memory of its own). Requests that wait take none of it. Staging
// memory has a budget of its own (budgets.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/attention/problem.h"
#include "engine/device/device.h"

namespace castor {

// How long a request will keep the device, predicted before it runs (forecast/forecast.h).
struct PredictedTime {
  double batch_us = 0;  // the batch's fixed part: paid once by all requests that share it
  double own_us = 0;    // of the request itself

  // The learned factor that both contain. Without it they are what the prices alone say.
  double correction = 1;

  double alone_us() const { return batch_us + own_us; }
};

// Most predictions are within this factor of what is measured.
inline constexpr double kPredictionMargin = 1.25;

// What a request, or a batch, needs while it runs, in bytes. Count::kMost for more than can be
// counted, and so for the sum of such.
struct MemoryNeed {
  int64_t own = 0;     // grows with the request: in a batch it adds up
  int64_t shared = 0;  // scratch that a batch needs once, however many requests share it
  // Of `own`, what an encoder's layers hold between kernels. The rest is workspace.
  int64_t activations = 0;

  int64_t bytes() const { return (attention::Count(own) + shared).value(); }

  // Of a batch of both.
  friend MemoryNeed operator+(const MemoryNeed& a, const MemoryNeed& b) {
    return {.own = (attention::Count(a.own) + b.own).value(),
            .shared = std::max(a.shared, b.shared),
            .activations = (attention::Count(a.activations) + b.activations).value()};
  }
  // What suffices for either.
  friend MemoryNeed Most(const MemoryNeed& a, const MemoryNeed& b) {
    return {.own = std::max(a.own, b.own),
            .shared = std::max(a.shared, b.shared),
            .activations = std::max(a.activations, b.activations)};
  }
};

// EngineOptions::max_device_bytes where that is 0. On the CPU half of the memory. A GPU's memory
// less what its libraries take beside tensors. No bound where the device does not know its memory.
inline int64_t AutomaticDeviceBytes(const Device& device) {
  const int64_t memory = device.info().memory_bytes;
  if (memory <= 0) return std::numeric_limits<int64_t>::max();
  if (!device.copies_tensors()) return memory / 2;
  // The context, the libraries' workspaces, and what the allocator cannot use between blocks.
  constexpr int64_t kLeastReserve = int64_t{1} << 30;
  constexpr int64_t kReservePart = 16;
  return memory - std::min(memory / 2, std::max(kLeastReserve, memory / kReservePart));
}

// The budget, and the weights that are in it. Set before the first request, and constant from then
// on.
class DeviceBudget {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  void SetMost(int64_t bytes) { most_ = bytes; }

  int64_t most() const { return most_; }
  int64_t weights() const { return weights_; }

  // What the weights leave for runs.
  int64_t for_runs() const { return std::max<int64_t>(0, most_ - weights_); }

  // Takes room for a model's weights. False, and nothing is taken, if they do not fit next to the
  // others.
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

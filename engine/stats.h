// What the engine has counted since it started: a snapshot for exporters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/histogram.h"

namespace castor {

// Of "attend" per kernel ("vanilla", ...), of "encode" per model. All that this engine can run is
// listed, from the start.
struct WorkStats {
  std::string operation;
  std::string kernel;                                      // empty: of "encode"
  std::string model;                                       // empty: of "attend"
  std::vector<std::pair<std::string, uint64_t>> requests;  // answered OK, by kernel
  uint64_t batches = 0;                                    // executed
  uint64_t tokens = 0;                                     // computed
  uint64_t padded_tokens = 0;          // computed although no request asked for them
  HistogramSnapshot queue_seconds;     // per request
  HistogramSnapshot copy_in_seconds;   // per batch
  HistogramSnapshot compute_seconds;   // per batch
  HistogramSnapshot copy_out_seconds;  // per batch
  HistogramSnapshot batch_requests;    // per batch
  HistogramSnapshot batch_tokens;      // per batch

  // Of the kernels that "automatic" may choose for "attend".
  uint64_t automatic_requests = 0;  // those of `requests` whose kernel it chose
  uint64_t automatic_rejected = 0;  // its runs whose estimated error was too large
  // Of "attend" with approximate kernels: estimates, per probed request. No bounds elsewhere.
  HistogramSnapshot relative_error;
  HistogramSnapshot prediction_ratio;  // measured time of a batch by what was predicted

  uint64_t answered() const {  // OK, by whichever kernel
    uint64_t all = 0;
    for (const auto& [by, count] : requests) all += count;
    return all;
  }
};

struct RefusalStats {
  Reason reason;
  uint64_t count = 0;
};

// What waits or runs now, and its budgets.
struct LoadStats {
  int64_t queued_requests = 0;    // waiting for a batch
  int64_t inflight_requests = 0;  // admitted and not answered, waiting ones included
  int64_t inflight_tokens = 0;
  int64_t inflight_bytes = 0;
  int64_t max_requests = 0;
  int64_t max_tokens = 0;
  int64_t max_bytes = 0;
  // Of the device's memory: what the models' weights take and running batches are predicted to
  // take, and the bound on it.
  int64_t device_bytes = 0;
  int64_t max_device_bytes = 0;
  double queued_seconds = 0;      // predicted time of what waits, alone on the device
  double max_queued_seconds = 0;  // the longest predicted wait
  double oldest_seconds = 0;      // since the oldest request that is not answered arrived
  // Share in use of the scarcest of the budgets over what is admitted, 0 to 1. The device's memory
  // is none of them: who finds no room in it waits, and so counts.
  double saturation = 0;
};

// What running batches take of the device's memory, as it is predicted: upper bounds.
struct RunMemory {
  int64_t activations = 0;  // of an encoder's layers, between kernels
  int64_t workspace = 0;    // all else: kernels' scratch, copies of tensors on a GPU
};

struct MemoryStats {
  int64_t device_allocated_bytes = 0;  // in tensors; on the CPU: the model weights
  int64_t device_reserved_bytes = 0;   // held by the caching allocator
  int64_t device_peak_bytes = 0;
  // Of what is reserved and in no tensor, parts of blocks that others still use: only tensors that
  // fit can have them, and the driver cannot have them back.
  int64_t device_split_bytes = 0;
  RunMemory runs;
  RunMemory runs_peak;            // the most of each so far
  int64_t host_in_use_bytes = 0;  // staging memory handed out
  int64_t host_cached_bytes = 0;
  int64_t host_peak_bytes = 0;
};

struct EngineStats {
  std::vector<WorkStats> work;
  std::vector<RefusalStats> refusals;  // every reason, including those at zero
  LoadStats load;
  MemoryStats memory;
  HistogramSnapshot tokenize_seconds;  // per request that brought text
  HistogramSnapshot fidelity_seconds;  // per batch of fidelity probes
  uint64_t cancelled_queued = 0;       // cancelled or expired before their batch was formed
  // Cancelled while they ran, or expired in a run that failed or was ended.
  uint64_t cancelled_running = 0;
  uint64_t device_faults = 0;
  uint64_t deadline_misses = 0;  // requests that were admitted and not answered by their deadline
  uint64_t preemptions = 0;      // batches that passed a running one
  // Of the device, on runs for requests that were not answered, or too late.
  double wasted_seconds = 0;
  std::array<HistogramSnapshot, 3> wait_seconds;  // for a batch to start, by Priority
  // Of the device, by tenant; many tenants share the row "other".
  std::vector<std::pair<std::string, double>> tenant_seconds;
  bool device_healthy = true;
};

}  // namespace castor

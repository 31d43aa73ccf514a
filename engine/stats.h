// The engine's counts since it started: a snapshot for exporters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/histogram.h"

namespace castor {

// What EngineOptions::answer_cache did for one model.
struct AnswerCacheStats {
  uint64_t hits = 0;    // requests that were answered from it
  uint64_t misses = 0;  // requests that ran, although it keeps their kind of answer
  int64_t bytes = 0;    // of the answers that it holds, with keys and bookkeeping
};

// A row for each kernel of "attend" ("vanilla", ...) and each model of "encode". All that this
// engine can run has a row from the start.
struct WorkStats {
  std::string operation;
  std::string kernel;                                      // empty for "encode"
  std::string model;                                       // empty for "attend"
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

  // For kernels of "attend" that "automatic" may choose.
  uint64_t automatic_requests = 0;  // the part of `requests` for which it was chosen
  uint64_t automatic_rejected = 0;  // runs that were rejected because of their estimated error
  // For approximate kernels of "attend": the estimate of each probed request. Else without bounds.
  HistogramSnapshot relative_error;
  HistogramSnapshot prediction_ratio;  // measured / predicted time of a batch

  AnswerCacheStats cache;  // of a model

  uint64_t answered() const {  // OK, by any kernel
    uint64_t all = 0;
    for (const auto& [by, count] : requests) all += count;
    return all;
  }
};

struct RefusalStats {
  Reason reason;
  uint64_t count = 0;
};

// The requests that wait or run now, and their budgets.
struct LoadStats {
  int64_t queued_requests = 0;    // waiting for a batch
  int64_t inflight_requests = 0;  // admitted and not answered, waiting ones included
  int64_t inflight_tokens = 0;
  int64_t inflight_bytes = 0;
  int64_t max_requests = 0;
  int64_t max_tokens = 0;
  int64_t max_bytes = 0;
  // The device's memory that models' weights take and running batches are predicted to take, and
  // the bound on it.
  int64_t device_bytes = 0;
  int64_t max_device_bytes = 0;
  double queued_seconds = 0;      // predicted device time of the waiting requests
  double max_queued_seconds = 0;  // the longest predicted wait
  double oldest_seconds = 0;      // since the oldest unanswered request arrived
  // The used share of the scarcest admission budget, 0 to 1. The device's memory is not one of
  // them: requests without room in it wait, and so count.
  double saturation = 0;
};

// Predicted upper bounds of the device's memory that running batches take.
struct RunMemory {
  int64_t activations = 0;  // of an encoder's layers, between kernels
  int64_t workspace = 0;    // the rest: kernels' scratch, copies of tensors on a GPU
};

struct MemoryStats {
  int64_t device_allocated_bytes = 0;  // in tensors; on the CPU: the model weights
  int64_t device_reserved_bytes = 0;   // held by the caching allocator
  int64_t device_peak_bytes = 0;
  // The free parts of reserved blocks that are partly in use. Only tensors that fit can use them,
  // and they cannot be returned to the driver.
  int64_t device_split_bytes = 0;
  RunMemory runs;
  RunMemory runs_peak;            // the maximum of each so far
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
  // Requests that were cancelled while they ran, or expired in a run that failed or was ended.
  uint64_t cancelled_running = 0;
  uint64_t device_faults = 0;
  uint64_t deadline_misses = 0;  // requests that were admitted and not answered by their deadline
  uint64_t preemptions = 0;      // batches that preempted a running one
  // Device time on requests that were not answered, or too late.
  double wasted_seconds = 0;
  std::array<HistogramSnapshot, 3> wait_seconds;  // for a batch to start, by Priority
  // Device time by tenant; all but the first tenants share the row "other".
  std::vector<std::pair<std::string, double>> tenant_seconds;
  bool device_healthy = true;
};

}  // namespace castor

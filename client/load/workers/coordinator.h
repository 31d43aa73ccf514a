// One run on several workers: each is told its share of the plan, all begin at the same moment, and
// what they measured is added up.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "client/load/judge/verdict.h"
#include "client/load/workers/job.h"

namespace castor::load {

struct WorkerAddress {
  std::string target;  // HOST:PORT, or unix:PATH
  std::string token;   // empty: none
};

struct CoordinatorOptions {
  std::string version;
  // From the order to the begin: a second more than the warm-up, which lies before the begin.
  std::chrono::nanoseconds lead{std::chrono::seconds(1)};
  // A worker's clock that cannot be read more exactly than this is refused.
  std::chrono::nanoseconds max_clock_error{std::chrono::milliseconds(5)};
  std::chrono::nanoseconds connect_timeout{std::chrono::seconds(10)};
  std::chrono::nanoseconds prepare_timeout{std::chrono::minutes(5)};
  // A worker that says nothing for so long while the run goes on has failed.
  std::chrono::nanoseconds silence{std::chrono::seconds(30)};
};

struct WorkerReport {
  std::string target;
  std::chrono::nanoseconds clock_ahead{};  // of this host's
  std::chrono::nanoseconds clock_error{};  // bound: half the quickest round trip
  std::string failure;                     // empty: its result is in the sum
};

struct SharedRun {
  RunData data;  // of the workers that gave a result
  std::vector<WorkerReport> workers;

  // For the verdict's validity: rule `workers`, which fails when a worker did.
  Finding finding() const;
};

// Runs `job` on all workers; sets index and workers itself. `on_progress` is called on the caller's
// thread. `stop` ends the run early, with what was measured. When a worker fails, the others are
// stopped, and the result is what they have. Throws std::runtime_error, which names the worker,
// when one cannot be used or cannot prepare: no request has been sent then.
SharedRun RunOnWorkers(const std::vector<WorkerAddress>& workers, const Job& job,
                       const CoordinatorOptions& options, const OnProgress& on_progress,
                       const std::atomic<bool>& stop);

}  // namespace castor::load

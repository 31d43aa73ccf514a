// A batch on the device: its jobs, the description that the device reads, and the execution.
//
// Engine thread only.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/automatic/plan.h"
#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/ledger/counters.h"
#include "engine/ledger/job.h"
#include "engine/ledger/runs.h"

namespace castor {

// Not movable: the device keeps pointers into the description until the execution is done.
class RunningBatch {
 public:
  // Requires at least one job, and one batch key for all. Allocates the spec and a few words per
  // job; the process ends if that fails.
  explicit RunningBatch(JobList jobs) noexcept;
  RunningBatch(const RunningBatch&) = delete;
  RunningBatch& operator=(const RunningBatch&) = delete;

  // Hands the batch to the device. Neither this nor Wait throws.
  absl::Status Start(Device& device, RunControl& control);

  // Whether Wait would return at once. Both require that Start succeeded.
  bool Done() const noexcept { return execution_->Done(); }

  // Waits for the outputs.
  absl::StatusOr<ExecutionTimes> Wait();

  JobList& jobs() { return jobs_; }

  // For the engine loop.
  Runs::Id id = 0;  // never reused
  TimePoint begun;

 private:
  JobList jobs_;
  AttentionBatch attention_;
  encoder::Batch encode_;
  std::unique_ptr<Execution> execution_;  // last: destroyed before what it points to
};

// The probe step of a plan: estimates the errors of a batch of approximate attention that has run.
// Computes exact attention for a few query rows of each request on the same device, and compares.
// Returns the outcome for every job, in order: an estimate each, or one error for all. Counts the
// time of a probe that succeeds. Requires executed jobs of one batch, whose plans say Step::kProbe.
std::vector<StepOutcome> ProbeFidelity(Device& device, const Clock& clock, Counters& counters,
                                       const JobList& jobs, RunControl& control);

}  // namespace castor

// The steps that a request still needs. A plan is told how each step ended and says what comes
// next:
//
//   run     the device computes the output with the job's kernel;
//   probe   the error of an approximate run is measured, because the caller asked for it, for the
//           statistics, or because the automatic kernel goes on until an error is small enough.
//
// The code that runs the steps need not know why or how often. A plan depends only on what it is
// told, and belongs to the owner of its job.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/automatic/ladder.h"
#include "engine/request.h"

namespace castor {

enum class Step {
  kRun,     // with Plan::kernel()
  kProbe,   // of the last run's output
  kAnswer,  // with the last run's output: nothing is left to do
  kFail,    // with the step's error, unless it helps to run again
};

// How a step ended for one request.
struct StepOutcome {
  absl::Status status = absl::OkStatus();
  double compute_us = 0;                            // of a run
  std::optional<Fidelity> estimate = std::nullopt;  // of a probe
};

class Plan {
 public:
  // One run, then the answer.
  Plan() = default;

  // Runs the kernels of `ladder`, if there is one. After a run of an approximation, probes
  // `probe_rows` rows per sequence; 0: no probe. If it `reports`, the answer states the error; if
  // not, the error is measured for the statistics only.
  Plan(std::optional<attention::Ladder> ladder, int32_t probe_rows, bool reports)
      : ladder_(std::move(ladder)), probe_rows_(probe_rows), reports_(reports) {}

  // Takes the outcome of a step and returns what follows. The first step is a run. After kRun and
  // kFail the next step is a run, after kProbe a probe.
  Step Next(const StepOutcome& outcome);

  // Whether the kernel is the engine's choice.
  bool automatic() const { return ladder_.has_value(); }

  // What to run when Next has returned kRun. Requires automatic().
  const Kernel& kernel() const { return ladder_->current().kernel; }

  // Every kernel that may run; empty if the caller named one.
  std::span<const attention::Rung> rungs() const;

  int32_t probe_rows() const { return probe_rows_; }

  // Where each sequence's rows begin among those that a probe computes again, and their number.
  std::vector<int32_t> ProbeOffsets(std::span<const int32_t> cu_seqlens_q) const;

  // Adds to an answer's report what is known about the choice of its kernel and its error.
  void Describe(ExecutionReport* report) const;

 private:
  bool NeedsProbe() const;

  std::optional<attention::Ladder> ladder_;  // of the automatic kernel
  int32_t probe_rows_ = 0;
  bool reports_ = false;

  bool probing_ = false;  // the current step is a probe
  double compute_us_ = 0;
  std::optional<Fidelity> estimate_;  // the last
};

}  // namespace castor

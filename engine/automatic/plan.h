// The steps that a request still needs. A plan takes the outcome of each step and returns the next:
//
//   run     the device computes the output with the job's kernel;
//   probe   the error of an approximate run is measured: because the caller asked for it, for the
//           statistics, or because the automatic kernel continues until the error is small enough.
//
// The automatic kernel's candidates run one after another, each more exact than the one before,
// while the error is larger than the caller allows. The code that runs the steps need not know why
// or how often. A plan depends only on the outcomes, and belongs to the owner of its job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/attention/resolve.h"
#include "engine/attention/variants.h"
#include "engine/automatic/candidates.h"
#include "engine/request.h"
#include "engine/requests/staging.h"

namespace castor {

enum class Step {
  kRun,     // with Plan::kernel()
  kProbe,   // of the last run's output
  kAnswer,  // with the last run's output
  kFail,    // with the step's error, unless a retry may help
};

// The outcome of a step for one request.
struct StepOutcome {
  absl::Status status = absl::OkStatus();
  double compute_us = 0;                            // of a run
  std::optional<Fidelity> estimate = std::nullopt;  // of a probe
};

class Plan {
 public:
  // One run, then the answer.
  Plan() = default;

  // After the run of an approximation, probes `rows` rows per sequence; 0: no probe. `reports`: the
  // answer states the error; otherwise it is measured only for the statistics.
  Plan(int32_t rows, bool reports) : probe_rows_(rows), reports_(reports) {}

  // For the automatic kernel: at least one candidate, each more exact than the one before.
  Plan(std::vector<attention::Candidate> candidates, double max_relative_error, int32_t rows)
      : candidates_(std::move(candidates)),
        max_relative_error_(max_relative_error),
        probe_rows_(rows),
        reports_(rows > 0) {}

  // Takes the outcome of a step and returns what follows. The first step is a run. After kRun and
  // kFail the next step is a run, after kProbe a probe.
  Step Next(const StepOutcome& outcome);

  // Whether the kernel is the engine's choice.
  bool automatic() const { return !candidates_.empty(); }

  // The kernel to run when Next has returned kRun. Requires automatic().
  const Kernel& kernel() const { return candidates_[current_].kernel; }

  // All kernels that may run; empty if the caller named one.
  std::span<const attention::Candidate> candidates() const { return candidates_; }

  int32_t probe_rows() const { return probe_rows_; }

  // Adds the choice of the kernel and its error to an answer's report.
  void Describe(ExecutionReport* report) const;

 private:
  struct Attempt {
    size_t candidate;
    Fidelity estimate;
    double measured_us;
  };

  bool NeedsProbe() const;
  bool MayMeet(size_t candidate, double error) const;
  bool Accept(const Fidelity& estimate);

  std::vector<attention::Candidate> candidates_;  // of the automatic kernel
  double max_relative_error_ = 0;
  int32_t probe_rows_ = 0;
  bool reports_ = false;

  bool probing_ = false;  // the current step is a probe
  double compute_us_ = 0;
  size_t current_ = 0;    // the candidate that runs next, or ran last
  bool settled_ = false;  // whether it is the answer, whatever its error
  std::vector<Attempt> attempts_;
};

// Picks the requests whose error is measured only for the statistics: evenly spread, by counting.
// The pick changes no result.
class FidelitySampling {
 public:
  explicit FidelitySampling(double share) : share_(share) {}

  // Rows per sequence for the next request that could be measured; 0 if it is not picked.
  int32_t NextRows();

 private:
  const double share_;
  std::atomic<uint64_t> seen_ = 0;
};

// The plan of an attention request when it is submitted: the candidates of the automatic kernel,
// and whether an error is measured. Replaces the kernel of `resolved` with the plan's first one.
// Any thread.
Plan PlanAttention(const AttentionRequest& request, std::span<const attention::Variant> variants,
                   const attention::PriceOf& price_of, FidelitySampling& sampling,
                   attention::Resolved* resolved);

// The budget share of a request's tensors alone. It is exact and costs nothing to compute, so it is
// checked before anything else is computed from the request's sizes.
Cost TensorCost(const attention::Resolved& resolved);

// The budget share of the whole request: its tensors, and the rows that a probe of the error
// stages.
Cost CostOf(const Plan& plan, const attention::Resolved& resolved);

}  // namespace castor

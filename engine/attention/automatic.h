// The automatic kernel: which kernels may answer a request, cheapest first, and when the next one
// must run because the estimated error is too large.
//
// Pure functions of their arguments; any thread may call them. A Ladder belongs to one request. A
// choice depends on the request, the device's kernels and the cost model, which is fixed when the
// engine starts; never on load, history or the batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/attention/cost_model.h"
#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "engine/request.h"

namespace castor::attention {

// Query rows per sequence on which the error of an approximation is measured. They are about a
// third of the work of the default 100 centroids, which also attend to all keys.
inline constexpr int32_t kAutomaticFidelityRows = 32;

// Whether a kernel approximates vanilla, so that its error can be measured. CAST does not: it is a
// different function.
bool IsApproximate(KernelName kernel);

// One kernel that may answer, with default parameters.
struct Rung {
  Kernel kernel;
  double predicted_us = 0;  // 0: the model does not know
};

// The kernels to try in this order, at least one, each more exact than the one before; the last is
// the most exact one that is allowed. An approximation is tried before another kernel if its
// predicted time, the probe of its error included, is at most half of that one's, since the time is
// lost if the error turns out too large. Without an error allowance, or with an empty model, the
// plan is the most exact kernel only.
//
// `spec` and the offsets describe the request, whatever kernel `spec` holds. Requires that
// `automatic` allows a kernel that `variants` can run.
std::vector<Rung> PlanAutomatic(const Automatic& automatic, const Spec& spec,
                                std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k,
                                std::span<const Variant> variants, const CostModel& costs);

// A request's progress through its plan.
class Ladder {
 public:
  Ladder(std::vector<Rung> rungs, double max_relative_error);

  // The rung that runs next, or ran last.
  const Rung& current() const { return rungs_[current_]; }

  // Whether the run of current() must be followed by an estimate of its error.
  bool needs_estimate() const { return !settled_ && IsApproximate(NameOf(current().kernel)); }

  // Takes the estimate for the last run. True: the run is the answer. False: current() has changed
  // and must run. If no kernel meets the allowance, the one with the smallest estimate is the
  // answer; it runs again if another ran last.
  bool Accept(const Fidelity& estimate, double measured_us);

  // Of the answer; nullopt when it is exact.
  std::optional<Fidelity> fidelity() const;

  // Runs that are not the answer, in order.
  std::vector<RejectedKernel> rejected() const;

  // Every kernel that may still run.
  std::span<const Rung> rungs() const { return rungs_; }

 private:
  struct Attempt {
    size_t rung;
    Fidelity estimate;
    double measured_us;
  };

  std::vector<Rung> rungs_;
  double max_relative_error_;
  size_t current_ = 0;
  bool settled_ = false;  // current() is the answer, whatever its error
  std::vector<Attempt> attempts_;
};

}  // namespace castor::attention

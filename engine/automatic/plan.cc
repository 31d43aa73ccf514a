#include "engine/automatic/plan.h"

#include <algorithm>
#include <utility>

namespace castor {

Step Plan::Next(const StepOutcome& outcome) {
  const bool probed = std::exchange(probing_, false);
  if (!outcome.status.ok()) {
    // A request that did not ask for the error keeps its result.
    return probed && !reports_ ? Step::kAnswer : Step::kFail;
  }
  if (probed) {
    estimate_ = outcome.estimate;
    const bool accepted = !ladder_ || ladder_->Accept(*estimate_, compute_us_);
    return accepted ? Step::kAnswer : Step::kRun;
  }
  compute_us_ = outcome.compute_us;
  probing_ = NeedsProbe();
  return probing_ ? Step::kProbe : Step::kAnswer;
}

bool Plan::NeedsProbe() const { return probe_rows_ > 0 && (!ladder_ || ladder_->needs_estimate()); }

std::vector<int32_t> Plan::ProbeOffsets(std::span<const int32_t> cu_seqlens_q) const {
  std::vector<int32_t> offsets = {0};
  offsets.reserve(cu_seqlens_q.size());
  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    offsets.push_back(offsets.back() +
                      std::min(probe_rows_, cu_seqlens_q[s + 1] - cu_seqlens_q[s]));
  }
  return offsets;
}

std::span<const attention::Rung> Plan::rungs() const {
  return ladder_ ? ladder_->rungs() : std::span<const attention::Rung>();
}

void Plan::Describe(ExecutionReport* report) const {
  if (ladder_) {
    report->kernel.predicted_us = ladder_->current().predicted_us;
    report->kernel.rejected = ladder_->rejected();
  }
  if (reports_) report->fidelity = ladder_ ? ladder_->fidelity() : estimate_;
}

}  // namespace castor

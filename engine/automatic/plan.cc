#include "engine/automatic/plan.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/count.h"

namespace castor {

using attention::Count;
using attention::LossOf;
using attention::Resolved;

Step Plan::Next(const StepOutcome& outcome) {
  const bool probed = std::exchange(probing_, false);
  if (!outcome.status.ok()) {
    // A failed probe does not fail a request that did not ask for it.
    return probed && !reports_ ? Step::kAnswer : Step::kFail;
  }
  if (probed) return Accept(*outcome.estimate) ? Step::kAnswer : Step::kRun;
  compute_us_ = outcome.compute_us;
  probing_ = NeedsProbe();
  return probing_ ? Step::kProbe : Step::kAnswer;
}

bool Plan::NeedsProbe() const {
  if (probe_rows_ == 0) return false;
  return !automatic() || (!settled_ && attention::IsApproximate(NameOf(kernel())));
}

// Whether a candidate may meet the allowance, given the error of the last run: false if its error
// would have to be less than half of what LossOf predicts. NaN fails the comparison.
bool Plan::MayMeet(size_t candidate, double error) const {
  constexpr double kBetterThanExpected = 2;
  const double expected = error * LossOf(candidates_[candidate].kernel) / LossOf(kernel());
  return expected <= kBetterThanExpected * max_relative_error_;
}

// Returns true if the last run is the answer. Otherwise kernel() has changed and must run: it is
// the next candidate that may meet the allowance, or the last one if none may. If no kernel meets
// the allowance, the one with the smallest error is the answer; it runs again if another ran last.
bool Plan::Accept(const Fidelity& estimate) {
  attempts_.push_back({.candidate = current_, .estimate = estimate, .measured_us = compute_us_});
  // A NaN estimate fails the comparison.
  if (!automatic() || estimate.relative_error <= max_relative_error_) return true;
  if (current_ + 1 < candidates_.size()) {
    size_t next = current_ + 1;
    while (next + 1 < candidates_.size() && !MayMeet(next, estimate.relative_error)) ++next;
    current_ = next;
    return false;
  }
  const auto best =
      std::min_element(attempts_.begin(), attempts_.end(), [](const Attempt& a, const Attempt& b) {
        return a.estimate.relative_error < b.estimate.relative_error;
      });
  settled_ = true;
  return std::exchange(current_, best->candidate) == best->candidate;
}

void Plan::Describe(ExecutionReport* report) const {
  if (automatic()) report->kernel.predicted_us = candidates_[current_].predicted_us;
  for (const Attempt& attempt : attempts_) {
    if (attempt.candidate != current_) {
      report->kernel.rejected.push_back({.kernel = candidates_[attempt.candidate].kernel,
                                         .measured_us = attempt.measured_us,
                                         .relative_error = attempt.estimate.relative_error});
    } else if (reports_) {
      report->fidelity = attempt.estimate;
    }
  }
}

int32_t FidelitySampling::NextRows() {
  constexpr int32_t kRows = 16;
  if (share_ == 0) return 0;
  const auto seen = static_cast<double>(seen_.fetch_add(1, std::memory_order_relaxed));
  // Pick a request whenever the expected number of picks reaches the next integer.
  return std::floor((seen + 1) * share_) > std::floor(seen * share_) ? kRows : 0;
}

Plan PlanAttention(const AttentionRequest& request, std::span<const attention::Variant> variants,
                   const attention::PriceOf& price_of, FidelitySampling& sampling,
                   Resolved* resolved) {
  Kernel& kernel = resolved->spec.kernel;
  if (const auto* automatic = std::get_if<Automatic>(&request.kernel)) {
    auto candidates = attention::CandidatesOf(*automatic, resolved->spec, resolved->cu_seqlens_q,
                                              resolved->cu_seqlens_k, variants, price_of);
    kernel = candidates.front().kernel;
    const int32_t rows = std::max(request.fidelity_rows, attention::kAutomaticFidelityRows);
    return {std::move(candidates), automatic->max_relative_error,
            attention::IsApproximate(NameOf(kernel)) ? rows : 0};
  }
  if (!attention::IsApproximate(NameOf(kernel))) return {};
  if (request.fidelity_rows > 0) return {request.fidelity_rows, true};
  return {sampling.NextRows(), false};
}

Cost TensorCost(const Resolved& resolved) {
  return {.tokens = std::max(resolved.query_tokens, resolved.key_tokens),
          .bytes = resolved.staging_bytes};
}

Cost CostOf(const Plan& plan, const Resolved& resolved) {
  Cost cost = TensorCost(resolved);
  if (plan.probe_rows() == 0) return cost;
  // Add the probe's queries and results.
  const attention::Spec& spec = resolved.spec;
  const int64_t rows = attention::OffsetsOfRows(resolved.cu_seqlens_q, plan.probe_rows()).back();
  cost.bytes =
      (Count(cost.bytes) + Count(rows) * spec.heads * (Count(spec.head_dim) + spec.value_dim) *
                               static_cast<int64_t>(SizeOf(spec.dtype)))
          .value();
  return cost;
}

}  // namespace castor

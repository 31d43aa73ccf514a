#include "engine/attention/automatic.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/kernel_table.h"

namespace castor::attention {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// The assumed probability that an approximation meets the allowance, before anything is known of
// the input. Trying it pays if it costs at most this share of what would run in its place.
constexpr double kEvenOdds = 0.5;

bool Allows(const Automatic& automatic, KernelName name) {
  const std::vector<KernelName>& allowed = automatic.allowed;
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), name) != allowed.end();
}

// A candidate, and the cost of choosing it.
struct Candidate {
  Rung rung;
  double cost = kUnknown;  // the run and the probe of its error
};

// The time of the exact rows that an approximation is compared with.
double ProbeCost(const Spec& exact, std::span<const int32_t> cu_seqlens_q,
                 std::span<const int32_t> cu_seqlens_k, const CostModel& costs) {
  std::vector<int32_t> rows = {0};
  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    rows.push_back(rows.back() +
                   std::min(kAutomaticFidelityRows, cu_seqlens_q[s + 1] - cu_seqlens_q[s]));
  }
  return costs.Predict(exact, rows, cu_seqlens_k).value_or(0);
}

}  // namespace

bool IsApproximate(KernelName kernel) { return RowOf(kernel).kind == KernelKind::kApproximation; }

std::vector<Rung> PlanAutomatic(const Automatic& automatic, const Spec& spec,
                                std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k,
                                std::span<const Variant> variants, const CostModel& costs) {
  // Most exact first. CAST needs tensors that only the caller has.
  std::vector<Candidate> candidates;
  for (const KernelName name : kAutomaticKernels) {
    const Kernel kernel = DefaultKernel(name);
    Spec candidate = spec;
    candidate.kernel = kernel;
    if (!Allows(automatic, name) || FindVariant(variants, candidate) == nullptr) continue;
    const double us = costs.Predict(candidate, cu_seqlens_q, cu_seqlens_k).value_or(kUnknown);
    double cost = us;
    if (IsApproximate(name) && us != kUnknown) {
      candidate.kernel = Vanilla{};
      cost += ProbeCost(candidate, cu_seqlens_q, cu_seqlens_k, costs);
    }
    candidates.push_back({{kernel, us == kUnknown ? 0 : us}, cost});
  }
  if (automatic.max_relative_error == 0 || costs.empty()) candidates.resize(1);

  // From the most exact one on, takes whatever is worth trying before the last one taken.
  std::vector<Rung> rungs;
  double last = kUnknown;
  for (Candidate& candidate : candidates) {
    const bool pays = candidate.cost != kUnknown && candidate.cost <= kEvenOdds * last;
    if (!rungs.empty() && !pays) continue;
    last = candidate.cost;
    rungs.push_back(std::move(candidate.rung));
  }
  std::reverse(rungs.begin(), rungs.end());
  return rungs;
}

Ladder::Ladder(std::vector<Rung> rungs, double max_relative_error)
    : rungs_(std::move(rungs)), max_relative_error_(max_relative_error) {}

bool Ladder::Accept(const Fidelity& estimate, double measured_us) {
  attempts_.push_back({current_, estimate, measured_us});
  // A NaN estimate fails the comparison.
  const auto error = [](const Attempt& attempt) { return attempt.estimate.relative_error; };
  if (error(attempts_.back()) <= max_relative_error_) return true;
  if (current_ + 1 < rungs_.size()) {
    ++current_;
    return false;
  }
  const auto best =
      std::min_element(attempts_.begin(), attempts_.end(),
                       [&](const Attempt& a, const Attempt& b) { return error(a) < error(b); });
  settled_ = true;
  if (best->rung == current_) return true;
  current_ = best->rung;
  return false;
}

std::optional<Fidelity> Ladder::fidelity() const {
  for (auto attempt = attempts_.rbegin(); attempt != attempts_.rend(); ++attempt) {
    if (attempt->rung == current_) return attempt->estimate;
  }
  return std::nullopt;
}

std::vector<RejectedKernel> Ladder::rejected() const {
  std::vector<RejectedKernel> rejected;
  for (const Attempt& attempt : attempts_) {
    if (attempt.rung == current_) continue;
    rejected.push_back({NameOf(rungs_[attempt.rung].kernel), attempt.measured_us,
                        attempt.estimate.relative_error});
  }
  return rejected;
}

}  // namespace castor::attention

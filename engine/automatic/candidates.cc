#include "engine/automatic/candidates.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "engine/kernel_table.h"

namespace castor::attention {
namespace {

// The assumed probability that an approximation meets the allowance, while nothing is known about
// the input. Trying it pays if it costs at most this share of the kernel that would run in its
// place.
constexpr double kEvenOdds = 0.5;

// The times of neighbours differ by about a factor of two, as those of candidates should.
constexpr int32_t kClusters[] = {25, 50, 100, 200, 400, 800};
constexpr int32_t kTopKeys[] = {32, 64, 128};

// The remaining fraction of a cluster's error with a query's own top keys: for the default number
// of keys, and for each doubling of it.
constexpr double kImprovedPart = 0.4;
constexpr double kDoublingPart = 0.75;
// The remaining fraction with both options beyond the paper: for MiniLM's vectors 1 - cosine falls
// from 0.022 to 0.008, and an error is the square root of that. And with groups, on its queries at
// 4,096 tokens, with 100 clusters and 128 keys: 0.095 of 0.137.
constexpr double kOptionsPart = 0.6;
constexpr double kGroupsPart = 0.7;

bool HasOptions(const ImprovedClustered& kernel) {
  return kernel.clustering == Clustered::Clustering::kQuerySpace && WeighsRest(kernel);
}

bool Allows(const Automatic& automatic, KernelName name) {
  const std::vector<KernelName>& allowed = automatic.allowed;
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), name) != allowed.end();
}

// Every approximation with every set of parameters, most exact first.
std::vector<Kernel> Approximations(const Automatic& automatic) {
  std::vector<Kernel> kernels;
  for (const int32_t clusters : kClusters) {
    if (Allows(automatic, KernelName::kClustered)) {
      kernels.emplace_back(Clustered{.clusters = clusters});
    }
    if (!Allows(automatic, KernelName::kImprovedClustered)) continue;
    for (const int32_t topk : kTopKeys) {
      ImprovedClustered kernel;
      kernel.clusters = clusters;
      kernel.topk = topk;
      kernels.emplace_back(kernel);
      kernels.emplace_back(WithOptionsBeyondThePaper(kernel));
    }
  }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Kernel& a, const Kernel& b) { return LossOf(a) < LossOf(b); });
  return kernels;
}

}  // namespace

bool IsApproximate(KernelName kernel) { return RowOf(kernel).kind == KernelKind::kApproximation; }

double LossOf(const Kernel& kernel) {
  const auto loss = [](const Clustered& clustering) {
    return 1 / std::sqrt(static_cast<double>(clustering.clusters));
  };
  if (const auto* improved = std::get_if<ImprovedClustered>(&kernel)) {
    const double doublings = std::log2(improved->topk / 32.0);
    const double groups = improved->rest_groups > 1 ? kGroupsPart : 1;
    const double options = HasOptions(*improved) ? kOptionsPart * groups : 1;
    return options * kImprovedPart * std::pow(kDoublingPart, doublings) * loss(*improved);
  }
  const auto* clustered = std::get_if<Clustered>(&kernel);
  return clustered == nullptr ? 0 : loss(*clustered);
}

std::vector<int32_t> OffsetsOfRows(std::span<const int32_t> cu_seqlens, int32_t rows) {
  std::vector<int32_t> offsets = {0};
  offsets.reserve(cu_seqlens.size());
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    offsets.push_back(offsets.back() + std::min(rows, cu_seqlens[s + 1] - cu_seqlens[s]));
  }
  return offsets;
}

std::vector<Candidate> CandidatesOf(const Automatic& automatic, const Spec& spec,
                                    std::span<const int32_t> cu_seqlens_q,
                                    std::span<const int32_t> cu_seqlens_k,
                                    std::span<const Variant> variants, const PriceOf& price_of) {
  constexpr double kUnknownUs = std::numeric_limits<double>::infinity();
  Spec priced = spec;
  const auto price = [&](const Kernel& kernel, std::span<const int32_t> queries) {
    priced.kernel = kernel;
    return price_of(priced, queries, cu_seqlens_k).value_or(kUnknownUs);
  };
  const auto runs = [&](const Kernel& kernel) {
    priced.kernel = kernel;
    return FindVariant(variants, priced) != nullptr;
  };
  // CAST needs tensors that only the caller has.
  const auto first = std::find_if(
      std::begin(kAutomaticKernels), std::end(kAutomaticKernels),
      [&](KernelName name) { return Allows(automatic, name) && runs(DefaultKernel(name)); });
  const double us = price(DefaultKernel(*first), cu_seqlens_q);
  const Candidate most_exact = {DefaultKernel(*first), us == kUnknownUs ? 0 : us};
  if (automatic.max_relative_error == 0) return {most_exact};

  const double exact_us = price(Vanilla{}, cu_seqlens_q);
  const std::vector<int32_t> probed = OffsetsOfRows(cu_seqlens_q, kAutomaticFidelityRows);
  const double probe_us = std::isfinite(exact_us) ? price(Vanilla{}, probed) : 0;
  std::vector<Candidate> candidates;
  double next_us = kUnknownUs;  // the cost of the candidate that follows
  if (!IsApproximate(*first)) {
    // With many short sequences no approximation can pay.
    if (2 * probe_us > exact_us) return {most_exact};
    candidates.push_back(most_exact);
    next_us = exact_us;
  }
  for (const Kernel& kernel : Approximations(automatic)) {
    if (!runs(kernel)) continue;
    const double run_us = price(kernel, cu_seqlens_q);
    const double cost_us = run_us + probe_us;
    if (cost_us >= exact_us || cost_us > kEvenOdds * next_us) continue;
    candidates.push_back({kernel, run_us});
    next_us = cost_us;
  }
  if (candidates.empty()) return {most_exact};
  std::reverse(candidates.begin(), candidates.end());
  return candidates;
}

}  // namespace castor::attention

#include "engine/automatic/rungs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/attention/problem.h"
#include "engine/kernel_table.h"

namespace castor::attention {
namespace {

// The assumed probability that an approximation meets the allowance, before anything is known of
// the input. Trying it pays if it costs at most this share of what would run in its place.
constexpr double kEvenOdds = 0.5;

// Between neighbours times differ by about two, and so do the rungs of a request.
constexpr int32_t kClusters[] = {25, 50, 100, 200, 400, 800};
constexpr int32_t kTopKeys[] = {32, 64, 128};

// What a query's own top keys leave of the error of its cluster: for the default number of keys,
// and for each doubling of it.
constexpr double kImprovedPart = 0.4;
constexpr double kDoublingPart = 0.75;
// And with both options beyond the paper: of MiniLM's vectors 1 - cosine falls from 0.022 to 0.008,
// and an error is the square root of that.
constexpr double kOptionsPart = 0.6;

bool HasOptions(const ImprovedClustered& kernel) {
  return kernel.clustering == Clustered::Clustering::kQuerySpace &&
         kernel.rest_mass == ImprovedClustered::RestMass::kQuery;
}

void AddKernels(KernelName name, std::vector<Kernel>* kernels) {
  if (name == KernelName::kVanilla) kernels->emplace_back(Vanilla{});
  for (const int32_t clusters : kClusters) {
    if (name == KernelName::kClustered) kernels->emplace_back(Clustered{.clusters = clusters});
    if (name != KernelName::kImprovedClustered) continue;
    for (const int32_t topk : kTopKeys) {
      ImprovedClustered kernel;
      kernel.clusters = clusters;
      kernel.topk = topk;
      kernels->emplace_back(kernel);
      kernels->emplace_back(WithOptionsBeyondThePaper(kernel));
    }
  }
}

}  // namespace

bool IsApproximate(KernelName kernel) { return RowOf(kernel).kind == KernelKind::kApproximation; }

double LossOf(const Kernel& kernel) {
  const auto loss = [](const Clustered& clustering) {
    return 1 / std::sqrt(static_cast<double>(clustering.clusters));
  };
  if (const auto* improved = std::get_if<ImprovedClustered>(&kernel)) {
    const double doublings = std::log2(improved->topk / 32.0);
    const double options = HasOptions(*improved) ? kOptionsPart : 1;
    return options * kImprovedPart * std::pow(kDoublingPart, doublings) * loss(*improved);
  }
  const auto* clustered = std::get_if<Clustered>(&kernel);
  return clustered == nullptr ? 0 : loss(*clustered);
}

std::vector<Kernel> KernelsToChooseFrom(std::span<const KernelName> allowed) {
  std::vector<Kernel> kernels;
  for (const KernelName name : kAutomaticKernels) {
    const bool allows =
        allowed.empty() || std::find(allowed.begin(), allowed.end(), name) != allowed.end();
    if (allows) AddKernels(name, &kernels);
  }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Kernel& a, const Kernel& b) { return LossOf(a) < LossOf(b); });
  return kernels;
}

std::vector<Rung> RungsThatPay(std::span<const Candidate> candidates) {
  std::vector<Rung> rungs;
  double last = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    const bool pays = std::isfinite(candidate.cost_us) && candidate.cost_us <= kEvenOdds * last;
    if (!rungs.empty() && !pays) continue;
    last = candidate.cost_us;
    rungs.push_back(candidate.rung);
  }
  std::reverse(rungs.begin(), rungs.end());
  return rungs;
}

}  // namespace castor::attention

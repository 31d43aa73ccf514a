#include "engine/scheduling/cosine_probe.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <variant>

#include "engine/attention/cost/rungs.h"

namespace castor {
namespace {

CosineGains::Kind KindOf(const EncodeWork& work, KernelName kernel) {
  return {.generation = work.model->generation,
          .pooling = work.item.pooling,
          .dimensions = work.item.dimensions,
          .kernel = kernel,
          .embeddings = work.item.embeddings != nullptr};
}

void EstimateCosine(const Job& job, EncodeWork& work, const CosineGains& gains,
                    StepOutcome* outcome) {
  // The next run overwrites the output.
  std::memcpy(work.kept.data(), work.output.data(), work.output.size());
  work.kept_kernel = job.kernel;
  const CosineGains::Estimate estimate =
      gains.LeastCosine(job.tenant, KindOf(work, job.kernel), work.item.cu_seqlens, work.losses);
  int32_t rows = 0;
  for (size_t s = 0; s + 1 < work.item.cu_seqlens.size(); ++s) {
    rows = std::max(rows, work.item.cu_seqlens[s + 1] - work.item.cu_seqlens[s]);
  }
  outcome->estimate = Fidelity{.rows = std::min(rows, work.item.probe_rows),
                               .relative_error = DistanceOf(estimate.cosine)};
  outcome->comparisons = estimate.comparisons;
}

void CompareWithKept(const Job& job, EncodeWork& work, CosineGains& gains, StepOutcome* outcome) {
  const KernelName kernel = *work.kept_kernel;
  work.kept_kernel.reset();
  const auto dimensions = static_cast<size_t>(work.item.dimensions);
  double least = 1;
  for (size_t s = 0; s < work.cosines.size(); ++s) {
    const std::span<const float> kept(work.kept.as<float>() + s * dimensions, dimensions);
    const std::span<const float> exact(work.item.output + s * dimensions, dimensions);
    work.cosines[s] = CosineOf(kept, exact);
    if (!(work.cosines[s] >= least)) least = work.cosines[s];  // NaN stays
  }
  gains.Learn(job.tenant, KindOf(work, kernel), work.item.cu_seqlens, work.losses, work.cosines);
  outcome->compared = DistanceOf(least);
}

}  // namespace

void AddCosines(const JobList& jobs, CosineGains& gains, std::vector<StepOutcome>* outcomes) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    auto* work = std::get_if<EncodeWork>(&jobs[i]->work);
    if (work == nullptr || work->losses.empty()) continue;
    if (attention::IsApproximate(jobs[i]->kernel)) {
      EstimateCosine(*jobs[i], *work, gains, &(*outcomes)[i]);
    } else if (work->kept_kernel) {
      CompareWithKept(*jobs[i], *work, gains, &(*outcomes)[i]);
    }
  }
}

}  // namespace castor

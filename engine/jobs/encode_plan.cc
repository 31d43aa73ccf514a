#include "engine/jobs/encode_plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "engine/attention/cost/rungs.h"
#include "engine/encoder/model.h"
#include "engine/jobs/cosine_gains.h"
#include "engine/jobs/staging.h"

namespace castor {
namespace {

using attention::Candidate;
using attention::Rung;
using attention::Variant;

bool Runs(const LoadedModel& model, std::span<const Variant> variants, const Kernel& kernel) {
  const std::vector<KernelName>& names = model.info.kernels;
  if (std::find(names.begin(), names.end(), NameOf(kernel)) == names.end()) return false;
  return encoder::CheckOption(*model.encoder, kernel, variants).ok();
}

// Cheapest first; one if no approximation pays, or nothing is known of their times.
std::vector<Rung> RungsOf(const Automatic& automatic, const LoadedModel& model,
                          std::span<const int32_t> cu_seqlens, const Predictor& predictor,
                          std::span<const Variant> variants) {
  Rung exact = {.kernel = Vanilla{}};
  const std::optional<double> exact_us = predictor.Price(model, exact.kernel, cu_seqlens);
  if (!exact_us) return {std::move(exact)};
  exact.predicted_us = *exact_us;
  // Where the rest of the layers takes half of the time already, there is no need to look at each
  // kernel. Of short texts the probe's price is not needed either.
  const double rest_us = predictor.PriceWithoutAttention(model, cu_seqlens);
  if (2 * rest_us > *exact_us) return {std::move(exact)};
  const double probe_us = predictor.PriceOfProbe(model, cu_seqlens, kEncodeProbeRows);
  if (2 * (rest_us + probe_us) > *exact_us) return {std::move(exact)};
  std::vector<Candidate> candidates = {{exact, *exact_us}};
  for (const Kernel& kernel : attention::KernelsToChooseFrom(automatic.allowed)) {
    if (!attention::IsApproximate(NameOf(kernel)) || !Runs(model, variants, kernel)) continue;
    const std::optional<double> us = predictor.Price(model, kernel, cu_seqlens);
    if (us) candidates.push_back({{kernel, *us}, *us + probe_us});
  }
  return attention::RungsThatPay(candidates);
}

}  // namespace

Plan EncodePlanner::PlanFor(const EncodeRequest& request, const LoadedModel& model,
                            std::span<const int32_t> cu_seqlens, bool final, Kernel* kernel) {
  if (!AsksForCosine(request)) return {};
  const auto& automatic = std::get<Automatic>(*request.kernel);
  std::vector<Rung> rungs = RungsOf(automatic, model, cu_seqlens, predictor_, variants_);
  if (automatic.min_cosine == 1) rungs = {rungs.back()};
  *kernel = rungs.front().kernel;
  const bool approximates = rungs.size() > 1;
  const bool compares = approximates && final && compared_.NextRows() > 0;
  return Plan::OfEncode({std::move(rungs), DistanceOf(automatic.min_cosine)},
                        approximates ? kEncodeProbeRows : 0, compares);
}

}  // namespace castor

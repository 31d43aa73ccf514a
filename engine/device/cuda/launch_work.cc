#include "engine/device/cuda/launch_work.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "engine/attention/cost_model.h"

namespace castor {
namespace {

using attention::CostTerm;
using attention::Spec;

// What a score costs beside its products, above all its exponential, in multiply-adds. It keeps
// tiny dims from being taken for tiny work.
constexpr double kScore = 64;

// The cost model has no terms for CAST, which the automatic kernel never chooses.
double CastWork(const Spec& spec, const Cast& cast, int64_t tokens) {
  const auto n = static_cast<double>(tokens);
  const auto clusters = static_cast<double>(std::max<int64_t>(1, spec.surrogates));
  const double size =
      cast.cluster_size > 0 ? std::min<double>(cast.cluster_size, n) : std::ceil(n / clusters);
  // Tokens with surrogates before and after, and members with members.
  const double scores = 3 * n * clusters + clusters * size * size;
  const auto dims = static_cast<double>(spec.head_dim + spec.value_dim);
  return scores * (dims + kScore) * static_cast<double>(spec.heads) / 1e6;
}

}  // namespace

double LaunchWork(const Spec& spec, int64_t queries, int64_t keys) {
  if (const auto* cast = std::get_if<Cast>(&spec.kernel)) return CastWork(spec, *cast, queries);
  const auto* vanilla = std::get_if<Vanilla>(&spec.kernel);
  const bool causal = vanilla != nullptr && vanilla->causal;
  // Of the keys, a query sees this many on average.
  const int64_t seen = causal ? keys - (queries - 1) / 2 : keys;
  const std::array<int32_t, 2> q = {0, static_cast<int32_t>(queries)};
  const std::array<int32_t, 2> k = {0, static_cast<int32_t>(seen)};
  const attention::CostTerms terms = attention::CostTermsOf(spec, q, k);
  const auto term = [&](CostTerm name) { return terms[static_cast<size_t>(name)]; };
  return term(CostTerm::kTokens) + term(CostTerm::kScores) + kScore * term(CostTerm::kWeights) +
         term(CostTerm::kHash) + term(CostTerm::kLloyd) + term(CostTerm::kExact);
}

}  // namespace castor

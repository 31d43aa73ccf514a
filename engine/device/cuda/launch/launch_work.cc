#include "engine/device/cuda/launch/launch_work.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace castor {
namespace {

using attention::Spec;

// The cost of a score without its products, mainly its exponential, in multiply-adds. Without it,
// tiny dims would count as tiny work.
constexpr double kScore = 64;

// Microseconds for a million multiply-adds: 100 TFLOP/s in half types, 20 in float32.
constexpr double kHalfPrice = 0.02;
constexpr double kFloat32Price = 0.1;

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

double LaunchWorkIn(double us, DType dtype) {
  return us / (dtype == DType::kFloat32 ? kFloat32Price : kHalfPrice);
}

double LaunchWork(const Spec& spec, int64_t queries, int64_t keys) {
  if (const auto* cast = std::get_if<Cast>(&spec.kernel)) return CastWork(spec, *cast, queries);
  const auto* vanilla = std::get_if<Vanilla>(&spec.kernel);
  const bool causal = vanilla != nullptr && vanilla->causal;
  // A query sees this many keys on average.
  const int64_t seen = causal ? keys - (queries - 1) / 2 : keys;
  const auto n_q = static_cast<double>(queries);
  const auto n_k = static_cast<double>(seen);
  const auto dims = static_cast<double>(spec.head_dim + spec.value_dim);
  double rows = n_q;  // that attend to all keys
  double work = (n_q + n_k) * dims;
  if (const Clustered* const clustering = attention::ClusteringOf(spec.kernel)) {
    rows = std::min<double>(clustering->clusters, n_q);
    work += n_q * clustering->bits * static_cast<double>(spec.head_dim);
    work += n_q * rows * (clustering->iterations + 1);
  }
  if (const auto* const improved = std::get_if<ImprovedClustered>(&spec.kernel)) {
    work += n_q * std::min<double>(improved->topk, n_k) * dims;
  }
  work += rows * n_k * (dims + kScore);
  return work * static_cast<double>(spec.heads) / 1e6;
}

}  // namespace castor

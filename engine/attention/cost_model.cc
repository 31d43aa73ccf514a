#include "engine/attention/cost_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/kernel_table.h"

namespace castor::attention {
namespace {

constexpr double kMillion = 1e6;

double& At(CostTerms& terms, CostTerm term) { return terms[static_cast<size_t>(term)]; }

}  // namespace

CostTerms CostTermsOf(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                      std::span<const int32_t> cu_seqlens_k) {
  CostTerms terms{};
  if (RowOf(NameOf(spec.kernel)).kind == KernelKind::kOther) return terms;
  const Clustered* const clustering = ClusteringOf(spec.kernel);
  const auto* const improved = std::get_if<ImprovedClustered>(&spec.kernel);
  const auto dims = static_cast<double>(spec.head_dim + spec.value_dim);

  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    const auto queries = static_cast<double>(cu_seqlens_q[s + 1] - cu_seqlens_q[s]);
    const auto keys = static_cast<double>(cu_seqlens_k[s + 1] - cu_seqlens_k[s]);
    const double clusters =
        clustering == nullptr ? 0 : std::min<double>(clustering->clusters, queries);
    const double rows = clustering == nullptr ? queries : clusters;
    At(terms, CostTerm::kTokens) += (queries + keys) * dims;
    At(terms, CostTerm::kScores) += rows * keys * dims;
    At(terms, CostTerm::kWeights) += rows * keys;
    if (clustering != nullptr) {
      At(terms, CostTerm::kHash) += queries * clustering->bits * static_cast<double>(spec.head_dim);
      At(terms, CostTerm::kLloyd) += queries * clusters * (clustering->iterations + 1);
    }
    if (improved != nullptr) {
      At(terms, CostTerm::kExact) += queries * std::min<double>(improved->topk, keys) * dims;
    }
  }
  for (double& term : terms) term *= static_cast<double>(spec.heads) / kMillion;
  At(terms, CostTerm::kLaunch) = 1;
  At(terms, CostTerm::kSequences) =
      static_cast<double>(cu_seqlens_q.size() - 1) * static_cast<double>(spec.heads);
  return terms;
}

CostTerms FitCosts(std::span<const CostSample> samples) {
  // Coordinate descent: each step finds the best price of one term with the others held, which
  // solves the problem since it is convex. Relative errors: every row is divided by its time, so
  // that all targets are 1.
  constexpr int kSweeps = 20000;
  constexpr double kSettled = 1e-9;
  std::vector<CostTerms> rows;
  for (const CostSample& sample : samples) {
    CostTerms& row = rows.emplace_back(sample.terms);
    for (double& term : row) term /= sample.us;
  }
  CostTerms squares{};
  for (const CostTerms& row : rows) {
    for (size_t t = 0; t < kCostTerms; ++t) squares[t] += row[t] * row[t];
  }

  CostTerms prices{};
  std::vector<double> missing(rows.size(), 1.0);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;  // the largest relative change of a prediction
    for (size_t t = 0; t < kCostTerms; ++t) {
      if (squares[t] == 0) continue;
      double gradient = 0;
      for (size_t i = 0; i < rows.size(); ++i) gradient += rows[i][t] * missing[i];
      const double price = std::max(0.0, prices[t] + gradient / squares[t]);
      const double step = price - prices[t];
      prices[t] = price;
      for (size_t i = 0; i < rows.size(); ++i) {
        missing[i] -= step * rows[i][t];
        moved = std::max(moved, std::abs(step * rows[i][t]));
      }
    }
    if (moved < kSettled) break;
  }
  return prices;
}

std::optional<double> CostModel::Predict(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                         std::span<const int32_t> cu_seqlens_k) const {
  const auto found = prices_.find({NameOf(spec.kernel), spec.dtype});
  if (found == prices_.end()) return std::nullopt;
  const CostTerms terms = CostTermsOf(spec, cu_seqlens_q, cu_seqlens_k);
  double us = 0;
  for (size_t t = 0; t < kCostTerms; ++t) us += terms[t] * found->second[t];
  return us;
}

}  // namespace castor::attention

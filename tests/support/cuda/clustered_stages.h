// The results of the stages of clustered attention's kernels, and checks of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/twins/clustered.h"

namespace castor::attention {

struct ClusteredStages {
  // The part of `all` that belongs to one sequence in one head.
  template <typename T>
  static std::vector<T> Slice(const std::vector<T>& all, const OwnedProblem& problem, int64_t s,
                              int64_t h) {
    const auto row = all.begin() + h * problem.view.query_tokens();
    return {row + problem.cu_seqlens_q[s], row + problem.cu_seqlens_q[s + 1]};
  }

  // [heads, tokens]
  std::vector<uint64_t> codes;
  std::vector<int32_t> labels;
  std::vector<int32_t> order;
};

struct ClusteredStageErrors {
  bool labels_are_the_twins = true;  // for the same codes, bit for bit
  bool sorted = true;                // queries by cluster, stable
  // False if float64 finds other labels because a query lies almost on a plane; rows may then
  // differ.
  bool labels_are_exact = true;
};

inline std::vector<int32_t> OrderByLabel(const std::vector<int32_t>& labels) {
  std::vector<int32_t> order(labels.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return labels[a] < labels[b]; });
  return order;
}

inline ClusteredStageErrors CompareClusteredStages(const OwnedProblem& problem,
                                                   const ClusteredStages& stages) {
  const Spec& spec = problem.spec;
  const std::vector<int32_t> exact = ClusterLabels(spec, problem.view);
  ClusteredStageErrors errors;
  for (int64_t h = 0; h < spec.heads; ++h) {
    for (int64_t s = 0; s < problem.view.sequences(); ++s) {
      const std::vector<uint64_t> codes = ClusteredStages::Slice(stages.codes, problem, s, h);
      const std::vector<int32_t> labels = ClusteredStages::Slice(stages.labels, problem, s, h);
      errors.labels_are_the_twins =
          errors.labels_are_the_twins && labels == ClusterCodes(codes, ClusteringOf(spec)).labels;
      errors.sorted = errors.sorted &&
                      ClusteredStages::Slice(stages.order, problem, s, h) == OrderByLabel(labels);
      for (size_t i = 0; i < labels.size(); ++i) {
        const int64_t token = problem.cu_seqlens_q[s] + static_cast<int64_t>(i);
        errors.labels_are_exact =
            errors.labels_are_exact && labels[i] == exact[token * spec.heads + h];
      }
    }
  }
  return errors;
}

}  // namespace castor::attention

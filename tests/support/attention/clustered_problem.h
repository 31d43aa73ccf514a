// Random problems for clustered and improved clustered attention. Their discrete choices (hash
// bits, nearest centroids, top keys) have margins above float32's rounding, so an implementation
// must agree with the twin on every one of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/twins/clustered.h"
#include "tests/support/twins/tensors.h"

namespace castor::attention {

// query . normal - bias of bit t, relative to the size of the summands.
inline double HashMargin(const HashPlanes& planes, const double* query, int t) {
  double product = 0;
  double size = std::abs(planes.biases[t]);
  for (int64_t e = 0; e < planes.dim; ++e) {
    const double term = query[e] * planes.normals[t * planes.dim + e];
    product += term;
    size += std::abs(term);
  }
  // A zero query without bias gives exactly zero in every precision. That is no near tie: the bit
  // is 0.
  return size == 0 ? -INFINITY : (product - planes.biases[t]) / size;
}

// The absolute margin of the bit closest to its plane.
inline double LeastHashMargin(const HashPlanes& planes, const double* query) {
  double margin = INFINITY;
  for (int t = 0; t < planes.bits; ++t) {
    margin = std::min(margin, std::abs(HashMargin(planes, query, t)));
  }
  return margin;
}

// Redraws query rows that are too near a plane, from N(0, factor).
inline void MakeHashMargins(OwnedProblem& problem, std::mt19937& random, double factor = 1) {
  const Spec& spec = problem.spec;
  if (ClusteringOf(spec).clustering != Clustered::Clustering::kHash) return;
  const HashPlanes planes = MakeHashPlanes(ClusteringOf(spec), spec.head_dim);
  std::normal_distribution<double> normal;
  std::vector<double> query(spec.head_dim);
  for (int64_t token = 0; token < problem.view.query_tokens(); ++token) {
    for (int64_t head = 0; head < spec.heads; ++head) {
      const int64_t at = token * problem.view.query_stride + head * spec.head_dim;
      const auto load = [&] {
        for (int64_t e = 0; e < spec.head_dim; ++e) query[e] = problem.query.Get(at + e);
      };
      for (load(); LeastHashMargin(planes, query.data()) < 1e-5; load()) {
        for (int64_t e = 0; e < spec.head_dim; ++e) {
          problem.query.Set(at + e, factor * normal(random));
        }
      }
    }
  }
}

// The least difference between a cluster's last top key and the first key left out, relative to the
// largest absolute score.
inline double TopMargin(const Spec& spec, const Problem& problem) {
  const auto* improved = std::get_if<ImprovedClustered>(&spec.kernel);
  if (improved == nullptr) return INFINITY;
  const ReferenceTensors in(spec, problem);
  const std::vector<int32_t> labels = ClusterLabels(spec, problem);
  double margin = INFINITY;
  for (int64_t s = 0; s < problem.sequences(); ++s) {
    const int64_t queries = problem.cu_seqlens_q[s + 1] - problem.cu_seqlens_q[s];
    const int64_t clusters = std::min<int64_t>(improved->clusters, queries);
    for (int64_t h = 0; h < spec.heads; ++h) {
      std::vector<double> sums(clusters * spec.head_dim);
      std::vector<int64_t> members(clusters);
      for (int64_t i = problem.cu_seqlens_q[s]; i < problem.cu_seqlens_q[s + 1]; ++i) {
        const int32_t label = labels[i * spec.heads + h];
        ++members[label];
        for (int64_t e = 0; e < spec.head_dim; ++e) {
          sums[label * spec.head_dim + e] += in.query(i, h)[e];
        }
      }
      for (int64_t c = 0; c < clusters; ++c) {
        if (members[c] == 0) continue;
        std::vector<double> scores;
        for (int64_t j = problem.cu_seqlens_k[s]; j < problem.cu_seqlens_k[s + 1]; ++j) {
          const double product = Dot(&sums[c * spec.head_dim], in.key(j, h), spec.head_dim) /
                                 static_cast<double>(members[c]);
          const double bias = KeyBiasAt(spec, problem, j, h);
          if (bias == -INFINITY) continue;
          scores.push_back(spec.key_bias_heads == 0 ? product
                                                    : spec.softmax_scale * product + bias);
        }
        if (improved->topk >= static_cast<int64_t>(scores.size())) continue;
        std::sort(scores.begin(), scores.end(), std::greater<>());
        const double size = std::max(std::abs(scores.front()), std::abs(scores.back()));
        margin = std::min(margin, (scores[improved->topk - 1] - scores[improved->topk]) / size);
      }
    }
  }
  return margin;
}

// Redraws the problem until all of its choices have margins. Returns false if `tries` draws had
// none: with few numbers in a row, or few keys, there are shapes that nearly always have ties.
inline bool RandomizeWithMargins(OwnedProblem& problem, std::mt19937& random,
                                 double query_factor = 1, double key_factor = 1,
                                 int tries = std::numeric_limits<int>::max()) {
  while (tries-- > 0) {
    problem.Randomize(random, query_factor, key_factor);
    MakeHashMargins(problem, random, query_factor);
    if (QuerySpaceMargin(problem.spec, problem.view) >= 1e-6 &&
        TopMargin(problem.spec, problem.view) >= 2e-6) {
      return true;
    }
  }
  return false;
}

// Queries around a few centres, as in trained models: clusters and top keys are then almost always
// clear of rounding.
inline void RandomizeAroundCentres(OwnedProblem& problem, int centres, std::mt19937& random) {
  problem.Randomize(random, 0.1, 1, 1);
  const int64_t dim = problem.spec.head_dim;
  std::normal_distribution<double> normal;
  std::vector<double> centre(centres * dim);
  for (double& x : centre) x = 1.5 * normal(random);
  for (int64_t i = 0; i < problem.view.query_tokens(); ++i) {
    for (int64_t h = 0; h < problem.spec.heads; ++h) {
      const auto c = static_cast<int64_t>(random() % centres);
      const int64_t at = i * problem.view.query_stride + h * dim;
      for (int64_t e = 0; e < dim; ++e) {
        problem.query.Set(at + e, problem.query.Get(at + e) + centre[c * dim + e]);
      }
    }
  }
}

}  // namespace castor::attention

// Random CAST problems for tests: random_problem.h's problems with a layer's surrogate tokens and
// gates. Also their affinities in float64, for tests that ask why clusters came out as they did.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <random>
#include <vector>

#include "tests/support/attention/random_problem.h"
#include "tests/support/twins/cast.h"

namespace castor::attention {

// `spec` holds Cast; its `surrogates` is the number of surrogate tokens.
struct CastProblem {
  CastProblem(const Spec& spec, std::vector<int32_t> lengths, std::mt19937& random,
              const Gaps& gaps = {})
      : problem(spec, lengths, lengths, gaps),
        surrogates(spec.dtype, spec.surrogates * spec.heads * spec.head_dim),
        gate(problem.view.query_tokens()) {
    std::normal_distribution<float> normal;
    problem.Randomize(random);
    for (int64_t i = 0; i < surrogates.size(); ++i) surrogates.Set(i, normal(random));
    for (float& phi : gate) phi = normal(random);
    problem.view.cast.surrogates = surrogates.data();
    problem.view.cast.gate = gate.data();
  }

  std::vector<double> Reference() const { return CastReference(problem.spec, problem.view); }

  // The cluster size kappa for a sequence of `tokens` tokens.
  int64_t ClusterSize(int64_t tokens) const {
    const int32_t size = std::get<Cast>(problem.spec.kernel).cluster_size;
    const int64_t clusters = problem.spec.surrogates;
    return std::min<int64_t>(size > 0 ? size : (tokens + clusters - 1) / clusters, tokens);
  }

  // Whether float32 is precise enough to decide every token's cluster. Where it is not, another
  // implementation may choose other members, and some rows differ altogether.
  bool HasMargins(std::mt19937& random) const;

  OwnedProblem problem;
  Elements surrogates;      // [N_c, heads, head_dim]
  std::vector<float> gate;  // [tokens]
};

// Steps 1 and 2 of the definition, over the heads [head_begin, head_end): affinities [tokens,
// clusters] of one sequence. Does not use the twin's code, so it checks the twin too.
inline std::vector<double> CastAffinities(const CastProblem& layer, int64_t sequence,
                                          int64_t head_begin, int64_t head_end) {
  const Spec& spec = layer.problem.spec;
  const Problem& view = layer.problem.view;
  const auto& cast = std::get<Cast>(spec.kernel);
  const bool laplace = cast.attention_function == Cast::AttentionFunction::kLaplace;
  const int64_t begin = view.cu_seqlens_q[sequence];
  const int64_t tokens = view.cu_seqlens_q[sequence + 1] - begin;
  const int64_t clusters = spec.surrogates;
  const int64_t dim = spec.head_dim;
  std::vector<double> affinities(tokens * clusters);
  const auto add = [&](const Elements& rows, int64_t stride, int64_t i, int64_t h, int64_t row,
                       double share) {
    std::vector<double> weights(clusters);
    double most = -INFINITY;
    for (int64_t c = 0; c < clusters; ++c) {
      for (int64_t e = 0; e < dim; ++e) {
        weights[c] += rows.Get((begin + i) * stride + row * dim + e) *
                      layer.surrogates.Get((c * spec.heads + h) * dim + e);
      }
      weights[c] *= spec.softmax_scale;
      most = std::max(most, weights[c]);
    }
    double sum = 0;
    for (double& weight : weights) {
      weight = laplace
                   ? 0.5 * std::erfc((std::sqrt(0.5) - weight) * std::sqrt(2 * std::numbers::pi))
                   : std::exp(weight - most);
      sum += weight;
    }
    for (int64_t c = 0; c < clusters; ++c) {
      affinities[i * clusters + c] += share * weights[c] / (laplace ? 1 : sum);
    }
  };
  for (int64_t i = 0; i < tokens; ++i) {
    const double share = 1 / (1 + std::exp(-double{layer.gate[begin + i]}));
    for (int64_t h = head_begin; h < head_end; ++h) {
      add(layer.problem.query, view.query_stride, i, h, h, share);
      add(layer.problem.key, view.key_stride, i, h, h / spec.group(), 1 - share);
    }
  }
  return affinities;
}

inline bool CastProblem::HasMargins(std::mt19937& random) const {
  const Spec& spec = problem.spec;
  const auto& cast = std::get<Cast>(spec.kernel);
  const bool per_head = cast.head_clustering == Cast::HeadClustering::kPerHead;
  // A generous bound on the relative error of an affinity in float32. Scores of a few units are
  // exact to about 1e-6. Softmax keeps that; far down laplace's tail the error is 20 times as
  // large.
  const bool laplace = cast.attention_function == Cast::AttentionFunction::kLaplace;
  const double error = laplace ? 2e-4 : 2e-5;
  std::uniform_real_distribution<double> noise(1 - error, 1 + error);
  for (int64_t s = 0; s < problem.view.sequences(); ++s) {
    const int64_t tokens = problem.cu_seqlens_q[s + 1] - problem.cu_seqlens_q[s];
    const int64_t size = ClusterSize(tokens);
    for (int64_t h = 0; h < (per_head ? spec.heads : 1); ++h) {
      const std::vector<double> exact = CastAffinities(*this, s, h, per_head ? h + 1 : spec.heads);
      const auto members = CastMembers(exact, spec.surrogates, size, cast.clustering);
      // A decision closer than `error` changes in about every other trial.
      for (int trial = 0; trial < 24; ++trial) {
        std::vector<double> inexact = exact;
        for (double& affinity : inexact) affinity *= noise(random);
        if (CastMembers(inexact, spec.surrogates, size, cast.clustering) != members) return false;
      }
    }
  }
  return true;
}

// Draws problems until rounding cannot change the clusters.
inline std::unique_ptr<CastProblem> CastProblemWithMargins(const Spec& spec,
                                                           const std::vector<int32_t>& lengths,
                                                           std::mt19937& random) {
  while (true) {
    auto drawn = std::make_unique<CastProblem>(spec, lengths, random);
    if (drawn->HasMargins(random)) return drawn;
  }
}

}  // namespace castor::attention

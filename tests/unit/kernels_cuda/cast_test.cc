// CAST's kernels on the emulator against the twin: every dtype, reading of the definition and path.

#include "engine/kernels/cuda/cast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/attention/cast_reference.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/attention/cast_problem.h"
#include "tests/unit/kernels_cuda/cast_kernels.h"

namespace castor::kernels::cuda {
namespace {

using attention::CastMembers;
using attention::CastProblem;
using attention::FreshSeed;
using attention::Gaps;
using attention::RelativeError;
using attention::Spec;
using attention::Tolerance;

Spec MakeSpec(DType dtype, int64_t heads, int64_t head_dim, int64_t value_dim, int64_t surrogates,
              const Cast& kernel = {}) {
  Spec spec;
  spec.dtype = dtype;
  spec.heads = heads;
  spec.head_dim = head_dim;
  spec.value_dim = value_dim;
  spec.surrogates = surrogates;
  spec.softmax_scale = 1 / std::sqrt(static_cast<double>(head_dim));
  spec.kernel = kernel;
  return spec;
}

std::string NameOf(const Spec& spec) {
  const Cast& cast = std::get<Cast>(spec.kernel);
  return std::string(castor::NameOf(spec.dtype)) + " H=" + std::to_string(spec.heads) +
         " d=" + std::to_string(spec.head_dim) + " dv=" + std::to_string(spec.value_dim) +
         " Nc=" + std::to_string(spec.surrogates) + " kappa=" + std::to_string(cast.cluster_size) +
         " single=" + std::to_string(static_cast<int>(cast.clustering)) +
         " laplace=" + std::to_string(static_cast<int>(cast.attention_function)) +
         " ungated=" + std::to_string(static_cast<int>(cast.gate_temperature)) +
         " per_head=" + std::to_string(static_cast<int>(cast.head_clustering));
}

// Step 2 in float64: [tokens, clusters] of sequence s, for the heads [begin, end).
std::vector<double> ExactAffinities(const CastProblem& layer, int64_t s, int64_t begin,
                                    int64_t end) {
  const Spec& spec = layer.problem.spec;
  const attention::Problem& view = layer.problem.view;
  const bool laplace =
      std::get<Cast>(spec.kernel).attention_function == Cast::AttentionFunction::kLaplace;
  const int64_t first = view.cu_seqlens_q[s];
  const int64_t tokens = view.cu_seqlens_q[s + 1] - first;
  std::vector<double> affinities(tokens * spec.surrogates);
  for (int64_t i = 0; i < tokens; ++i) {
    const double share = 1 / (1 + std::exp(-double{layer.gate[first + i]}));
    for (int64_t h = begin; h < end; ++h) {
      for (const bool by_query : {true, false}) {
        const attention::Elements& rows = by_query ? layer.problem.query : layer.problem.key;
        const int64_t stride = by_query ? view.query_stride : view.key_stride;
        std::vector<double> f(spec.surrogates);
        for (int64_t c = 0; c < spec.surrogates; ++c) {
          for (int64_t e = 0; e < spec.head_dim; ++e) {
            f[c] += rows.Get((first + i) * stride + h * spec.head_dim + e) *
                    layer.surrogates.Get((c * spec.heads + h) * spec.head_dim + e);
          }
          f[c] *= spec.softmax_scale;
        }
        double sum = 0;
        const double max = *std::max_element(f.begin(), f.end());
        for (double& x : f) {
          x = laplace ? 0.5 * (1 + std::erf((x - std::sqrt(0.5)) * std::sqrt(2 * M_PI)))
                      : std::exp(x - max);
          sum += x;
        }
        for (int64_t c = 0; c < spec.surrogates; ++c) {
          affinities[i * spec.surrogates + c] +=
              (by_query ? share : 1 - share) * (laplace ? f[c] : f[c] / sum);
        }
      }
    }
  }
  return affinities;
}

class CudaCastTest : public testing::Test {
 protected:
  CudaCastTest() : seed_(FreshSeed()), random_(seed_), trace_(__FILE__, __LINE__, seed_) {
    cuda_emulator::SetSchedule(seed_);
  }

  int64_t Uniform(int64_t low, int64_t high) { return low + random_() % (high - low + 1); }

  // Runs the kernels and compares stage by stage: affinities with float64, clusters bit by bit with
  // the serial loop over the same affinities, rows with the twin. Where float64 chooses other
  // clusters, affinities are nearly tied, and the rows are not compared; returns whether they were.
  bool Check(const CastProblem& layer) {
    const Spec& spec = layer.problem.spec;
    SCOPED_TRACE(NameOf(spec));
    const Cast& cast = std::get<Cast>(spec.kernel);
    PreparedCast run(spec, layer.problem.view, 1 << (random_() % 4));
    run.RunAll();
    const bool per_head = cast.head_clustering == Cast::HeadClustering::kPerHead;
    const int64_t clusterings = per_head ? spec.heads : 1;
    bool same_clusters = true;
    for (int64_t s = 0; s < layer.problem.view.sequences(); ++s) {
      const int64_t tokens = layer.problem.cu_seqlens_q[s + 1] - layer.problem.cu_seqlens_q[s];
      const int64_t size = std::min<int64_t>(
          tokens, cast.cluster_size > 0 ? cast.cluster_size
                                        : (tokens + spec.surrogates - 1) / spec.surrogates);
      for (int64_t g = 0; g < clusterings; ++g) {
        const std::vector<double> affinities = run.Affinities(s, g);
        const std::vector<double> exact =
            ExactAffinities(layer, s, per_head ? g : 0, per_head ? g + 1 : spec.heads);
        double worst = 0;
        for (size_t i = 0; i < exact.size(); ++i) {
          worst = std::max(worst, std::abs(affinities[i] - exact[i]));
        }
        EXPECT_LE(worst, 1e-5 * static_cast<double>(spec.heads)) << "affinities";
        const auto members = run.Members(s, g);
        EXPECT_EQ(members, CastMembers(affinities, spec.surrogates, size, cast.clustering));
        same_clusters =
            same_clusters && members == CastMembers(exact, spec.surrogates, size, cast.clustering);
      }
    }
    if (same_clusters) {
      EXPECT_LE(RelativeError(layer.problem, layer.Reference()), Tolerance(spec.dtype));
    }
    return same_clusters;
  }

  const uint32_t seed_;
  std::mt19937 random_;
  testing::ScopedTrace trace_;
};

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

TEST_F(CudaCastTest, EveryReadingInEveryTypeMatchesTheTwin) {
  int compared = 0;
  int all = 0;
  for (const DType dtype : kTypes) {
    for (int reading = 0; reading < 16; ++reading) {
      if (kSanitized && reading % 4 != static_cast<int>(seed_ % 4)) continue;
      Cast cast;
      cast.clustering = static_cast<Cast::Clustering>(reading & 1);
      cast.attention_function = static_cast<Cast::AttentionFunction>(reading >> 1 & 1);
      cast.gate_temperature = static_cast<Cast::GateTemperature>(reading >> 2 & 1);
      cast.head_clustering = static_cast<Cast::HeadClustering>(reading >> 3 & 1);
      const CastProblem layer(MakeSpec(dtype, 2, 32, 32, Uniform(2, 6), cast),
                              {static_cast<int32_t>(Uniform(20, 80)), 1, 33}, random_);
      compared += Check(layer);
      ++all;
    }
  }
  EXPECT_GE(2 * compared, all);
}

}  // namespace
}  // namespace castor::kernels::cuda

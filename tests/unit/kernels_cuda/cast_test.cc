// CAST's kernels on the emulator against the twin: every dtype, every variant of the definition,
// and every path.

#include "engine/kernels/cuda/cast/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/odd_scales.h"
#include "tests/support/attention/spec.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/kernels_cuda/cast_kernels.h"

namespace castor::kernels::cuda {
namespace {

using attention::CastProblem;
using attention::CastReading;
using attention::Describe;
using attention::Gaps;
using attention::kCastReadings;
using attention::kFloatTypes;
using attention::MakeSpec;
using attention::RelativeError;
using attention::Spec;
using attention::Tolerance;
using attention::WithKvHeads;

class CudaCastTest : public testing::Test, protected Seeded {
 protected:
  CudaCastTest() { cuda_emulator::SetSchedule(seed_); }

  // Runs the kernels and compares stage by stage: affinities with float64, clusters bit for bit
  // with the serial loop over the same affinities, rows with the twin. If float64 chooses other
  // clusters, affinities are nearly tied and the rows are not compared. Returns whether they were.
  bool Check(const CastProblem& layer) {
    const Spec& spec = layer.problem.spec;
    SCOPED_TRACE(Describe(spec));
    PreparedCast run(spec, layer.problem.view);
    run.RunAll();
    const CastStageErrors errors = CompareCastStages(layer, run.stages());
    EXPECT_LE(errors.worst_affinity, 1e-5 * static_cast<double>(spec.heads));
    EXPECT_TRUE(errors.clusters_are_the_loops);
    if (errors.clusters_are_exact) {
      EXPECT_LE(RelativeError(layer.problem, layer.Reference()), Tolerance(spec.dtype));
    }
    return errors.clusters_are_exact;
  }
};

TEST_F(CudaCastTest, EveryReadingInEveryTypeMatchesTheTwin) {
  int compared = 0;
  int all = 0;
  for (const DType dtype : kFloatTypes) {
    for (int reading = 0; reading < kCastReadings; ++reading) {
      if (kSanitized && reading % 4 != static_cast<int>(seed_ % 4)) continue;
      const CastProblem layer(
          WithKvHeads(MakeSpec(dtype, CastReading(reading), 2, 32, 32, Uniform(2, 6)),
                      Uniform(1, 2)),
          {static_cast<int32_t>(Uniform(20, 66)), 1}, random_);
      compared += Check(layer);
      ++all;
    }
  }
  EXPECT_GE(2 * compared, all);
}

// Dimensions from 32 to 128 in one piece, odd ones element by element, those above 128 in pieces.
TEST_F(CudaCastTest, EveryDimensionMatchesTheTwin) {
  struct Dims {
    int64_t head_dim;
    int64_t value_dim;
  };
  constexpr Dims kDims[] = {{32, 32}, {64, 64}, {80, 80},   {96, 96}, {128, 128}, {7, 7},   {1, 3},
                            {64, 32}, {16, 96}, {160, 160}, {36, 20}, {200, 24},  {40, 300}};
  int compared = 0;
  int all = 0;
  for (const DType dtype : kFloatTypes) {
    for (const Dims& dims : kDims) {
      if (kSanitized && random_() % 4 != 0) continue;
      Cast cast;
      cast.attention_function = static_cast<Cast::AttentionFunction>(random_() % 2);
      cast.cluster_size = static_cast<int32_t>(Uniform(0, 30));
      const CastProblem layer(
          WithKvHeads(MakeSpec(dtype, cast, 2, dims.head_dim, dims.value_dim, Uniform(1, 5)),
                      Uniform(1, 2)),
          {static_cast<int32_t>(Uniform(1, 70))}, random_);
      compared += Check(layer);
      ++all;
    }
  }
  EXPECT_GE(2 * compared, all);
}

TEST_F(CudaCastTest, AnyFiniteScaleGivesTheDefinitionsRows) {
  const auto run = [](const attention::OwnedProblem& problem) {
    PreparedCast(problem.spec, problem.view).RunAll();
  };
  for (const DType dtype : kFloatTypes) {
    CastProblem layer(MakeSpec(dtype, attention::CastOf(100), 1, 8, 8, 3), {70, 5}, random_);
    attention::ExpectRowsOfScalesNearZero(layer.problem, run);
  }
  for (int reading = 0; reading < kCastReadings; ++reading) {
    if (kSanitized && reading % 4 != static_cast<int>(seed_ % 4)) continue;
    const DType dtype = kFloatTypes[reading % 3];
    CastProblem layer(MakeSpec(dtype, CastReading(reading), 1, 8, 8, 3), {70, 5}, random_);
    const bool gated = reading / 8 == static_cast<int>(seed_ % 2);
    if (gated) {
      for (size_t i = 0; i < layer.gate.size(); ++i) layer.gate[i] = i % 2 == 0 ? 3e38f : -3e38f;
    }
    attention::ExpectFiniteRowsOfAnyScale(layer.problem, run, !gated, /*sums_of_huge=*/false);
  }
}

TEST_F(CudaCastTest, RandomRaggedBatchesMatchTheTwin) {
  int compared = 0;
  const int rounds = Scaled(18);
  for (int round = 0; round < rounds; ++round) {
    Cast cast = CastReading(static_cast<int>(random_() % kCastReadings));
    if (cast.clustering == Cast::Clustering::kTopK) {
      cast.cluster_size = static_cast<int32_t>(random_() % 3 == 0 ? 0 : Uniform(1, 40));
    }
    std::vector<int32_t> lengths;
    for (int64_t s = Uniform(1, 5); s > 0; --s) {
      lengths.push_back(static_cast<int32_t>(random_() % 3 == 0 ? Uniform(1, 8) : Uniform(1, 90)));
    }
    const Gaps gaps{Uniform(0, 1) * Uniform(0, 9), Uniform(0, 1) * Uniform(0, 9),
                    Uniform(0, 1) * 16, Uniform(0, 1) * Uniform(0, 9)};
    const CastProblem layer(MakeSpec(kFloatTypes[random_() % 3], cast, Uniform(1, 4),
                                     Uniform(1, 40), Uniform(1, 40), Uniform(1, 12)),
                            lengths, random_, gaps);
    compared += Check(layer);
  }
  EXPECT_GE(2 * compared, rounds);
}

// More clusters than a tile holds; more members than a tile of keys or of queries.
TEST_F(CudaCastTest, ManyClustersAndLargeOnesMatchTheTwin) {
  for (const auto& [low, high] : {std::pair(65, 128), std::pair(129, 256), std::pair(257, 300)}) {
    if (kSanitized && random_() % 3 != 0) continue;
    Cast cast;
    cast.clustering = static_cast<Cast::Clustering>(random_() % 2);
    cast.head_clustering = static_cast<Cast::HeadClustering>(random_() % 2);
    const CastProblem many(
        MakeSpec(kFloatTypes[random_() % 3], cast, 2, 16, 16, Uniform(low, high)),
        {static_cast<int32_t>(Uniform(60, 110))}, random_);
    Check(many);
  }
  for (const auto clustering : {Cast::Clustering::kTopK, Cast::Clustering::kSingleAssignmentTopK}) {
    Cast cast;
    cast.clustering = clustering;
    cast.cluster_size = static_cast<int32_t>(Uniform(129, 170));
    const CastProblem large(MakeSpec(kFloatTypes[random_() % 3], cast, 2, 16, 16, 2), {200, 140},
                            random_);
    Check(large);
  }
}

TEST_F(CudaCastTest, LayersOfABatchAreToldApart) {
  Cast cast;
  Spec spec = MakeSpec(DType::kFloat16, cast, 2, 32, 32, 3);
  CastProblem layer(spec, {30, 17, 40}, random_);
  attention::Elements layers(spec.dtype, 3 * layer.surrogates.size());
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < layers.size(); ++i) layers.Set(i, normal(random_));
  const std::vector<int32_t> layer_of_sequence = {2, 0, 2};
  layer.problem.view.cast.surrogates = layers.data();
  layer.problem.view.cast.layer_of_sequence = layer_of_sequence;
  PreparedCast(spec, layer.problem.view).RunAll();
  EXPECT_LE(RelativeError(layer.problem, layer.Reference()), Tolerance(spec.dtype));
}

TEST_F(CudaCastTest, ASequenceHasTheSameBytesAloneAndInABatch) {
  for (int round = 0; round < Scaled(8); ++round) {
    Cast cast;
    cast.clustering = static_cast<Cast::Clustering>(random_() % 2);
    cast.attention_function = static_cast<Cast::AttentionFunction>(random_() % 2);
    cast.head_clustering = static_cast<Cast::HeadClustering>(random_() % 2);
    const int64_t dim = std::vector<int64_t>{24, 64, 80, 128}[random_() % 4];
    const Spec spec = MakeSpec(kFloatTypes[random_() % 3], cast, 2, dim, dim, Uniform(1, 8));
    SCOPED_TRACE(Describe(spec));
    std::vector<int32_t> lengths;
    for (int s = 0; s < 4; ++s) lengths.push_back(static_cast<int32_t>(Uniform(1, 60)));
    const CastProblem batch(spec, lengths, random_);
    PreparedCast(spec, batch.problem.view).RunAll();
    for (int64_t s = 0; s < 4; ++s) {
      cuda_emulator::SetSchedule(random_());
      CastProblem alone(spec, {lengths[s]}, random_);
      const int64_t first = batch.problem.cu_seqlens_q[s];
      const auto bytes = static_cast<int64_t>(SizeOf(spec.dtype));
      attention::Problem& view = alone.problem.view;
      const int64_t row = spec.heads * dim * bytes;
      view.query = batch.problem.view.query + first * row;
      view.key = batch.problem.view.key + first * row;
      view.value = batch.problem.view.value + first * row;
      view.cast = batch.problem.view.cast;
      view.cast.gate += first;
      PreparedCast(spec, view).RunAll();
      EXPECT_EQ(std::memcmp(view.output, batch.problem.view.output + first * row, lengths[s] * row),
                0)
          << "sequence " << s;
    }
  }
}

TEST_F(CudaCastTest, NaNSpoilsItsSequenceAlone) {
  for (const DType dtype : kFloatTypes) {
    for (const auto clustering :
         {Cast::Clustering::kTopK, Cast::Clustering::kSingleAssignmentTopK}) {
      if (kSanitized && random_() % 2 == 0) continue;  // half of the cases
      Cast cast;
      cast.clustering = clustering;
      const Spec spec = MakeSpec(dtype, cast, 2, 32, 32, 4);
      CastProblem clean(spec, {40, 33, 20}, random_);
      PreparedCast(spec, clean.problem.view).RunAll();
      const std::vector<std::byte> before = clean.problem.output.bytes();
      const int64_t row = spec.heads * spec.head_dim;
      for (attention::Elements* elements :
           {&clean.problem.query, &clean.problem.key, &clean.problem.value}) {
        attention::Elements& bad = *elements;
        bad.Set((40 + Uniform(0, 32)) * row + Uniform(0, row - 1),
                std::numeric_limits<double>::quiet_NaN());
        bad.Set((40 + Uniform(0, 32)) * row + Uniform(0, row - 1),
                std::numeric_limits<double>::infinity());
        PreparedCast(spec, clean.problem.view).RunAll();
        const auto bytes = static_cast<int64_t>(SizeOf(dtype));
        const std::byte* const after = clean.problem.view.output;
        EXPECT_EQ(std::memcmp(after, before.data(), 40 * row * bytes), 0);
        EXPECT_EQ(std::memcmp(after + 73 * row * bytes, before.data() + 73 * row * bytes,
                              20 * row * bytes),
                  0);
      }
    }
  }
}

// Laplace is not normalised: a summary that sums 60 values of up to 30000 is far beyond fp16, but
// the output, weighted by alpha, is not.
TEST_F(CudaCastTest, LaplaceSumsBeyondFp16AreKept) {
  Cast cast;
  cast.attention_function = Cast::AttentionFunction::kLaplace;
  CastProblem layer(MakeSpec(DType::kFloat16, cast, 1, 32, 32, 2), {120}, random_);
  for (int64_t i = 0; i < layer.problem.value.size(); ++i) {
    layer.problem.value.Set(i, 20000 + 10000 * ((i * 37 % 101) / 101.0));
  }
  for (int64_t i = 0; i < layer.problem.key.size(); ++i) layer.problem.key.Set(i, 0.5);
  // Keys match both surrogates and queries neither: weights near 1 in the summaries, tiny alpha for
  // them.
  for (int64_t i = 0; i < layer.surrogates.size(); ++i) layer.surrogates.Set(i, 0.25);
  for (int64_t i = 0; i < layer.problem.query.size(); ++i) {
    layer.problem.query.Set(i, -0.1 + 0.01 * ((i * 31 % 17) / 17.0));
  }
  PreparedCast(layer.problem.spec, layer.problem.view).RunAll();
  const std::vector<double> expected = layer.Reference();
  EXPECT_LE(RelativeError(layer.problem, expected), Tolerance(DType::kFloat16))
      << "of values near " << expected[0];
}

TEST_F(CudaCastTest, WorkspaceStaysBelowATenthOfTheUnfusedScores) {
  CastShape shape;
  shape.element = Element::kBFloat16;
  shape.heads = 8;
  shape.head_dim = shape.value_dim = 64;
  shape.clusters = 16;
  const std::vector<int32_t> cu_seqlens = {0, 4096};
  const int64_t unfused = int64_t{4096} * 4096 * 8 * 2;
  EXPECT_LE(10 * CastWorkspaceBytes(shape, cu_seqlens), unfused);
}

}  // namespace
}  // namespace castor::kernels::cuda

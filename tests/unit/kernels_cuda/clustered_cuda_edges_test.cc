// Clustered attention's CUDA kernels, on the emulator, with unusual problems: ties, more clusters
// or top keys than queries or keys, odd scales, NaN.

#include <gtest/gtest.h>

#include "tests/support/attention/odd_scales.h"
#include "tests/unit/kernels_cuda/clustered_fixture.h"

namespace castor::attention {
namespace {

TEST_F(ClusteredCudaTest, MoreClustersThanSharedMemoryHoldsAtATime) {
  for (const Kernel& kernel :
       {Kernel(PlainClusters(1100, seed_)), Kernel(ImprovedClusters(1100, 3, seed_))}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, kernel, 1, 16, 8), {1300, 30}, {40, 40});
    problem.Randomize(random_);
    const ClusteredRun run(problem);
    const ClusteredStageErrors errors = CompareClusteredStages(problem, run.stages());
    EXPECT_TRUE(errors.labels_are_the_twins);
    EXPECT_TRUE(errors.sorted);
  }
}

TEST_F(ClusteredCudaTest, AClusterPerQueryIsVanilla) {
  for (const DType dtype : kFloatTypes) {
    for (const Kernel& kernel : BothKernels(1000, 4, seed_)) {
      OwnedProblem problem(MakeSpec(dtype, kernel, 2, 32, 32), {40, 1, 9}, {30, 3, 9});
      problem.Randomize(random_);
      const ClusteredRun run(problem);
      EXPECT_LE(RelativeError(problem, VanillaOfTheSame(problem)), Tolerance(dtype))
          << NameOf(dtype);
    }
  }
}

TEST_F(ClusteredCudaTest, TopKeysBeyondAllKeysIsVanilla) {
  for (const DType dtype : kFloatTypes) {
    for (const int32_t topk : {70, 1024}) {
      OwnedProblem problem(MakeSpec(dtype, ImprovedClusters(3, topk, seed_), 2, 32, 32), {40, 5},
                           {70, 2});
      problem.Randomize(random_);
      const ClusteredRun run(problem);
      EXPECT_LE(RelativeError(problem, VanillaOfTheSame(problem)), Tolerance(dtype))
          << NameOf(dtype);
    }
  }
}

TEST_F(ClusteredCudaTest, OneQueryAndOneKey) {
  for (const DType dtype : kFloatTypes) {
    for (const Kernel& kernel : BothKernels(100, 32, seed_)) {
      OwnedProblem problem(MakeSpec(dtype, kernel, 3, 64, 64), {1}, {1});
      problem.Randomize(random_);
      const ClusteredRun run(problem);
      for (int64_t i = 0; i < problem.output.size(); ++i) {
        EXPECT_EQ(problem.output.Get(i), problem.value.Get(i)) << NameOf(dtype);
      }
    }
  }
}

// Scores are small integers, exact everywhere, so there are many exact ties.
TEST_F(ClusteredCudaTest, TiesAmongTopKeysGoToTheLowest) {
  constexpr int64_t kDim = 32;
  for (const DType dtype : kFloatTypes) {
    for (const int32_t keys : {50, 700, 2100}) {
      const int32_t topk = 1 + static_cast<int32_t>(random_() % 40);
      SCOPED_TRACE(std::string(NameOf(dtype)) + ", " + std::to_string(keys) +
                   " keys, k=" + std::to_string(topk));
      OwnedProblem problem(MakeSpec(dtype, ImprovedClusters(1, topk, seed_), 1, kDim, kDim), {3},
                           {keys});
      problem.Randomize(random_);
      for (int64_t i = 0; i < problem.query.size(); ++i) {
        problem.query.Set(i, i % kDim < 4 ? 1 + i % kDim : 0);  // all the same
      }
      for (int64_t i = 0; i < problem.key.size(); ++i) {
        problem.key.Set(i, static_cast<int>(random_() % 3) - 1);
      }
      const ClusteredRun run(problem);
      std::vector<int32_t> expected(keys);
      std::vector<double> scores(keys);
      for (int32_t j = 0; j < keys; ++j) {
        expected[j] = j;
        for (int64_t e = 0; e < 4; ++e) {
          scores[j] += problem.query.Get(e) * problem.key.Get(j * kDim + e);
        }
      }
      std::stable_sort(expected.begin(), expected.end(),
                       [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
      expected.resize(std::min(topk, keys));
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(run.workspace().top_counts[0], static_cast<int32_t>(expected.size()));
      EXPECT_EQ(std::vector<int32_t>(run.workspace().top_keys,
                                     run.workspace().top_keys + expected.size()),
                expected);
    }
  }
}

TEST_F(ClusteredCudaTest, ScoresThatRiseWithTheKeyFillEveryList) {
  // Every key beats all before it, so the lists are cut down repeatedly.
  for (const DType dtype : kFloatTypes) {
    constexpr int32_t kKeys = 1500;
    constexpr int32_t kTop = 70;
    OwnedProblem problem(MakeSpec(dtype, ImprovedClusters(1, kTop, seed_), 1, 32, 32), {2},
                         {kKeys});
    problem.Randomize(random_);
    for (int64_t i = 0; i < problem.query.size(); ++i) problem.query.Set(i, i % 32 < 2);
    for (int64_t j = 0; j < kKeys; ++j) {
      // Both are exact in every type.
      problem.key.Set(j * 32, static_cast<double>(j / 100 * 100) / 64);
      problem.key.Set(j * 32 + 1, static_cast<double>(j % 100) / 64);
    }
    const ClusteredRun run(problem);
    for (int32_t j = 0; j < kTop; ++j) {
      EXPECT_EQ(run.workspace().top_keys[j], kKeys - kTop + j) << NameOf(dtype);
    }
  }
}

TEST_F(ClusteredCudaTest, AnyFiniteScaleGivesTheDefinitionsRows) {
  for (const DType dtype : kFloatTypes) {
    for (const Kernel& kernel : BothKernels(4, 6, seed_)) {
      if (kSanitized && random_() % 2 == 0) continue;  // half of the cases
      OwnedProblem problem(MakeSpec(dtype, kernel, 1, 32, 32), {20, 2}, {300, 5});
      problem.Randomize(random_);
      SCOPED_TRACE(NameOf(dtype));
      const auto run = [](const OwnedProblem& of) { const ClusteredRun done(of); };
      ExpectRowsOfScalesNearZero(problem, run);
      ExpectFiniteRowsOfAnyScale(problem, run);
    }
  }
}

TEST_F(ClusteredCudaTest, NaNSpoilsItsSequenceAlone) {
  for (const DType dtype : kFloatTypes) {
    for (const Kernel& kernel : BothKernels(6, 40, seed_)) {
      if (kSanitized && random_() % 2 == 0) continue;  // half of the cases
      const Spec spec = MakeSpec(dtype, kernel, 2, 32, 32);
      OwnedProblem clean(spec, {60, 50, 40}, {60, 50, 40});
      clean.Randomize(random_);
      OwnedProblem spoilt(spec, {60, 50, 40}, {60, 50, 40});
      for (int64_t s = 0; s < 3; ++s) CopySequence(clean, s, spoilt, s);
      const int64_t row = spec.heads * spec.head_dim;
      for (Elements* const tensor : {&spoilt.query, &spoilt.key, &spoilt.value}) {
        tensor->Set(60 * row + static_cast<int64_t>(random_() % (50 * row)), NAN);
        tensor->Set(60 * row + static_cast<int64_t>(random_() % (50 * row)), INFINITY);
      }
      const ClusteredRun first(clean);
      const ClusteredRun second(spoilt);
      for (const int64_t s : {0, 2})
        EXPECT_EQ(OutputOf(clean, s), OutputOf(spoilt, s)) << NameOf(dtype);
    }
  }
}

}  // namespace
}  // namespace castor::attention

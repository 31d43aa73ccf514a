// Properties of clustered and improved clustered attention that follow from the definition, on the
// CPU: when rows are exact, how close they are otherwise, and that batching changes nothing.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/sanitizer.h"
#include "tests/unit/attention/clustered/clustered_cpu_fixture.h"

namespace castor::attention {
namespace {

TEST_P(ClusteredCpuTest, OneQueryOrOneKeyIsVanilla) {
  for (const int keys : {1, 2, 40, 1500}) {
    OwnedProblem problem(SpecOf(DType::kFloat32, 100, 16, 8, 3), {1}, {keys});
    RandomizeWithMargins(problem, random_);
    ExpectVanilla(problem);
  }
  OwnedProblem problem(SpecOf(DType::kFloat32, 100, 16, 8, 3), {200}, {1});
  problem.Randomize(random_);
  ExpectVanilla(problem);
}

TEST_P(ClusteredCpuTest, AClusterPerQueryIsVanilla) {
  for (int round = 0; round < 9; ++round) {
    OwnedProblem problem(SpecOf(kFloatTypes[round % 3], 1000, 16, 24, 2), {130, 1, 9}, {150, 3, 9});
    RandomizeWithMargins(problem, random_);
    // With 63 bits every Gaussian query has its own code, and Lloyd's algorithm starts with all of
    // them.
    ExpectVanilla(problem);
  }
}

TEST_P(ClusteredCpuTest, TopKeysBeyondAllKeysIsVanilla) {
  if (!improved()) GTEST_SKIP() << "has no top keys";
  for (int round = 0; round < 12; ++round) {
    OwnedProblem problem(SpecOf(kFloatTypes[round % 3], 4, 16, 24, 2, 1024), {UpTo(200), UpTo(20)},
                         {round < 3 ? 1024 : UpTo(300), UpTo(20)});
    problem.Randomize(random_, 2);
    ExpectVanilla(problem);
  }
}

TEST_P(ClusteredCpuTest, AllQueriesEqualIsVanilla) {
  OwnedProblem problem(SpecOf(DType::kFloat32, 20, 16, 16, 2), {300}, {700});
  problem.Randomize(random_);
  for (int64_t i = 32; i < problem.query.size(); ++i) {
    problem.query.Set(i, problem.query.Get(i % 32));
  }
  ExpectVanilla(problem);
}

TEST_P(ClusteredCpuTest, WeightsOfEveryRowSumToOne) {
  OwnedProblem problem(SpecOf(DType::kFloat32, 9, 16, 1, 2), {150, 40}, {1300, 70});
  problem.Randomize(random_, 2);
  for (int64_t i = 0; i < problem.value.size(); ++i) problem.value.Set(i, 1);
  Run(problem);
  for (int64_t i = 0; i < problem.output.size(); ++i) EXPECT_NEAR(problem.output.Get(i), 1, 2e-6);
}

// Theorem of section 3.3: no row gets further from the exact weights in L1 distance.
TEST_P(ClusteredCpuTest, RefiningNeverHurtsARow) {
  if (!improved()) GTEST_SKIP() << "does not refine";
  constexpr int32_t kKeys = 90;
  for (const int32_t topk : {1, 4, 16, 50}) {
    OwnedProblem problem(SpecOf(DType::kFloat32, 6, 8, kKeys, 2, topk), {120}, {kKeys});
    problem.Randomize(random_, 2);
    MakeValuesIdentity(problem);
    MakeHashMargins(problem, random_, 2);
    const std::vector<double> exact = VanillaOfTheSame(problem);
    Spec plain = problem.spec;
    plain.kernel = ClusteringOf(problem.spec);
    const std::vector<double> before = ClusteredReference(plain, problem.view);
    Run(problem);
    double gained = 0;
    for (int64_t row = 0; row < 240; ++row) {
      double worse = 0;
      double better = 0;
      for (int64_t j = row * kKeys; j < (row + 1) * kKeys; ++j) {
        worse += std::abs(before[j] - exact[j]);
        better += std::abs(problem.output.Get(j) - exact[j]);
      }
      EXPECT_LE(better, worse + 1e-5);
      gained += worse - better;
    }
    EXPECT_TRUE(gained > 0 || topk == 1);
  }
}

// Proposition 1 of the paper, with scale 1: the distance of a member's row from its exact row is at
// most the distance of its query from the centroid times |K|.
TEST_P(ClusteredCpuTest, RowsAreAsCloseAsQueriesToTheirCentroids) {
  if (improved()) GTEST_SKIP() << "a property of the shared rows";
  constexpr int32_t kKeys = 24;
  OwnedProblem problem(SpecOf(DType::kFloat32, 10, 6, kKeys), {100}, {kKeys});
  problem.spec.softmax_scale = 1;
  RandomizeWithMargins(problem, random_);
  MakeValuesIdentity(problem);
  double key_norm = 0;  // Frobenius norm, a bound on the spectral norm
  for (int64_t i = 0; i < problem.key.size(); ++i) key_norm += std::pow(problem.key.Get(i), 2);
  key_norm = std::sqrt(key_norm);
  const std::vector<int32_t> labels = ClusterLabels(problem.spec, problem.view);
  const std::vector<double> exact = VanillaOfTheSame(problem);
  Run(problem);
  for (int64_t i = 0; i < 100; ++i) {
    std::vector<double> mean(6);
    double members = 0;
    for (int64_t j = 0; j < 100; ++j) {
      if (labels[j] != labels[i]) continue;
      ++members;
      for (int64_t e = 0; e < 6; ++e) mean[e] += problem.query.Get(j * 6 + e);
    }
    double between_queries = 0;
    for (int64_t e = 0; e < 6; ++e) {
      between_queries += std::pow(problem.query.Get(i * 6 + e) - mean[e] / members, 2);
    }
    double between_rows = 0;
    for (int64_t e = 0; e < kKeys; ++e) {
      between_rows += std::pow(problem.Output(i, 0, e) - exact[i * kKeys + e], 2);
    }
    EXPECT_LE(std::sqrt(between_rows), std::sqrt(between_queries) * key_norm + 1e-5);
  }
}

TEST_P(ClusteredCpuTest, EqualQueriesGetEqualRows) {
  for (int round = 0; round < 6; ++round) {
    OwnedProblem problem(SpecOf(kFloatTypes[round % 3], 7, 24, 20, 1, 12), {300}, {200});
    problem.Randomize(random_);
    // The second half are copies of queries in the first, in another order.
    for (int64_t i = 150; i < 300; ++i) {
      for (int64_t e = 0; e < 24; ++e) {
        problem.query.Set(i * 24 + e, problem.query.Get((i * 7 % 150) * 24 + e));
      }
    }
    Run(problem);
    const size_t row = 20 * SizeOf(problem.spec.dtype);
    for (int64_t i = 150; i < 300; ++i) {
      EXPECT_EQ(0, std::memcmp(problem.output.data() + i * row,
                               problem.output.data() + i * 7 % 150 * row, row));
    }
  }
}

TEST_P(ClusteredCpuTest, AloneAndInAnyBatchGiveTheSameBytes) {
  for (const DType dtype : kFloatTypes) {
    const Spec spec = SpecOf(dtype, 20, 32, 40, 3, 12);
    std::vector<std::unique_ptr<OwnedProblem>> owned;
    std::vector<OwnedProblem*> problems;
    for (int i = 0; i < 8; ++i) {
      const std::vector<int32_t> lengths = {UpTo(kSanitized ? 300 : 1300), 3};
      owned.push_back(std::make_unique<OwnedProblem>(spec, lengths, lengths));
      owned.back()->Randomize(random_);
      problems.push_back(owned.back().get());
    }
    ExpectTheSameAloneAndTogether(problems);
  }
}

}  // namespace
}  // namespace castor::attention

// Properties of clustered and improved clustered attention that follow from the definition, on the
// CPU: when rows are exact, and how close they are otherwise.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/unit/attention/clustered/clustered_cpu_fixture.h"

namespace castor::attention {
namespace {

TEST_P(ClusteredCpuTest, ExactWhereTheDefinitionIs) {
  for (const DType dtype : kFloatTypes) {
    // A cluster for each query. With 63 bits every Gaussian query has its own code, and Lloyd's
    // algorithm starts with all of them.
    ForOptions(SpecOf(dtype, 1000, 16, 24, 2), [&](const Spec& spec) {
      OwnedProblem problem(spec, {130, 1, 9}, {150, 30, 9});
      RandomizeWithMargins(problem, random_);
      ExpectVanilla(problem);
    });
    // One query; one key; equal queries; equal keys.
    ForOptions(SpecOf(dtype, 20, 16, 8, 2), [&](const Spec& spec) {
      for (const int keys : {1, 2, 40, 1500}) {
        OwnedProblem one(spec, {1}, {keys});
        RandomizeWithMargins(one, random_);
        ExpectVanilla(one);
      }
      OwnedProblem key(spec, {200}, {1});
      key.Randomize(random_);
      ExpectVanilla(key);
      OwnedProblem equal(spec, {200}, {700});
      equal.Randomize(random_);
      for (int64_t i = 32; i < equal.query.size(); ++i) equal.query.Set(i, equal.query.Get(i % 32));
      ExpectVanilla(equal);
      OwnedProblem keys(spec, {60}, {300});
      keys.Randomize(random_);
      for (int64_t i = 32; i < keys.key.size(); ++i) keys.key.Set(i, keys.key.Get(i % 32));
      ExpectVanilla(keys);
    });
    // No key is left out.
    if (!improved()) continue;
    for (const int keys : {1024, UpTo(300)}) {
      ForOptions(SpecOf(dtype, 4, 16, 24, 2, 1024), [&](const Spec& spec) {
        OwnedProblem problem(spec, {UpTo(200), UpTo(20)}, {keys, UpTo(20)});
        problem.Randomize(random_, 2);
        ExpectVanilla(problem);
      });
    }
  }
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

// A member's top keys never get less than exact attention gives them, by convexity.
TEST_P(ClusteredCpuTest, OwnMassNeverExceedsTheTrueMass) {
  if (!improved()) GTEST_SKIP() << "has no rest";
  constexpr int32_t kKeys = 90;
  constexpr int32_t kTop = 12;
  ForOptions(SpecOf(DType::kFloat32, 6, 8, kKeys, 2, kTop), [&](const Spec& spec) {
    if (std::get<ImprovedClustered>(spec.kernel).rest_mass != RestMass::kQuery) return;
    OwnedProblem problem(spec, {120}, {kKeys});
    problem.Randomize(random_, 2);
    MakeValuesIdentity(problem);
    const std::vector<double> exact = VanillaOfTheSame(problem);
    Run(problem);
    for (int64_t row = 0; row < 240; ++row) {
      int64_t enough = 0;
      for (int64_t j = row * kKeys; j < (row + 1) * kKeys; ++j) {
        enough += problem.output.Get(j) >= exact[j] * (1 - 1e-5) - 1e-9;
      }
      EXPECT_GE(enough, kTop);
    }
  });
}

TEST_P(ClusteredCpuTest, EqualQueriesGetEqualRows) {
  for (const DType dtype : kFloatTypes) {
    ForOptions(SpecOf(dtype, 7, 24, 20, 1, 12), [&](const Spec& spec) {
      OwnedProblem problem(spec, {300}, {200});
      problem.Randomize(random_);
      // The second half are copies of queries in the first, in another order.
      for (int64_t i = 150; i < 300; ++i) {
        for (int64_t e = 0; e < 24; ++e) {
          problem.query.Set(i * 24 + e, problem.query.Get((i * 7 % 150) * 24 + e));
        }
      }
      Run(problem);
      const size_t row = 20 * SizeOf(dtype);
      for (int64_t i = 150; i < 300; ++i) {
        EXPECT_EQ(0, std::memcmp(problem.output.data() + i * row,
                                 problem.output.data() + i * 7 % 150 * row, row));
      }
    });
  }
}

}  // namespace
}  // namespace castor::attention

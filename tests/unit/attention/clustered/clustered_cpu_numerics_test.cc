// Clustered and improved clustered attention on the CPU with huge, tiny, very many and non-finite
// numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/support/attention/rounding_bound.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/attention/clustered/clustered_cpu_fixture.h"

namespace castor::attention {
namespace {

// The largest error of a problem's output, as a multiple of its bound.
double WorstOf(const OwnedProblem& problem, const std::vector<double>& expected,
               const std::vector<double>& bounds) {
  double worst = 0;
  for (int64_t i = 0; i < problem.output.size(); ++i) {
    const double error = std::abs(problem.output.Get(i) - expected[i]);
    worst = std::isfinite(error) ? std::max(worst, error / bounds[i]) : INFINITY;
  }
  return worst;
}

// The factors lead from a spread-out softmax to one that is a maximum.
TEST_P(ClusteredCpuTest, HugeScoresCostOnlyTheirRounding) {
  for (const double factor : {3.0, 10.0, 30.0, 1e3, 1e12}) {
    OwnedProblem problem(SpecOf(DType::kFloat32, 6, 8, 8, 2, 4), {60}, {1200});
    RandomizeWithMargins(problem, random_, factor, factor);
    Run(problem);
    const std::vector<double> expected = ClusteredReference(problem.spec, problem.view);
    const std::vector<double> bounds = RoundingBounds(problem, expected);
    EXPECT_LE(WorstOf(problem, expected, bounds), 1) << "factor " << factor;
    // The bound of a row between two near maxima is loose. Values are near 1, and most bounds must
    // be tight.
    const int64_t sharp =
        std::count_if(bounds.begin(), bounds.end(), [](double x) { return x < 0.01; });
    EXPECT_GE(2 * sharp, problem.output.size()) << "factor " << factor;
  }
}

// Nearly all of the mass is on the top keys, whose values dwarf the others, but members give those
// keys next to no weight. The rest must be a sum of small numbers, not a difference of large ones.
TEST_P(ClusteredCpuTest, SmallRestsAreNotDifferences) {
  if (!improved()) GTEST_SKIP() << "has no rest";
  OwnedProblem problem(SpecOf(DType::kFloat32, 1, 2, 4, 1, 2), {2}, {1500});
  problem.spec.softmax_scale = 1;
  problem.Randomize(random_);
  // The mean of the two queries is (5, 0), and its top keys are 700 and 1400. Each query matches
  // one of them.
  problem.query.Set(0, 5), problem.query.Set(1, 5);
  problem.query.Set(2, 5), problem.query.Set(3, -5);
  for (int64_t i = 0; i < problem.key.size(); ++i) problem.key.Set(i, 0.1 * problem.key.Get(i));
  problem.key.Set(1400, 3), problem.key.Set(1401, 6);
  problem.key.Set(2800, 3), problem.key.Set(2801, -6.5);
  for (int64_t e = 0; e < 4; ++e) problem.value.Set(2800 + e, 1e9);
  Run(problem);
  const std::vector<double> expected = ClusteredReference(problem.spec, problem.view);
  for (int64_t e = 0; e < 4; ++e) {
    // The second query gives key 700 a weight of e^-62.
    EXPECT_NEAR(problem.Output(1, 0, e), expected[4 + e], 1e-5 * (1 + std::abs(expected[4 + e])));
  }
}

TEST_P(ClusteredCpuTest, KeepsDenormals) {
  OwnedProblem tiny(SpecOf(DType::kFloat16, 4, 16, 16, 2), {33}, {33});
  tiny.Randomize(random_, 1e-6, 1e-6, 1e-6);  // float16's smallest normal number is 6e-5
  MakeHashMargins(tiny, random_, 1e-6);
  ClusteringOf(tiny.spec).clusters = 1;  // with biases, all codes are the same
  Run(tiny);
  // All weights agree to a millionth, and so do the rows, whatever the top keys are.
  const std::vector<double> expected = VanillaOfTheSame(tiny);
  for (int64_t i = 0; i < tiny.output.size(); ++i) {
    EXPECT_NEAR(tiny.output.Get(i), expected[i], 0x1p-24) << "in units of float16's last place";
  }
  OwnedProblem queries(SpecOf(DType::kFloat32, 4, 16, 16, 2, 40), {33}, {33});
  queries.Randomize(random_, 1e-40, 1e-40);
  ExpectVanilla(queries);
}

// A mean of 30000 queries, then a sum over 60000 values that nearly cancel. Rounding is
// proportional to the terms, and summing in blocks keeps it to a few units of that, whatever their
// number.
TEST_P(ClusteredCpuTest, ManyTokensRoundLikeFew) {
  if (improved()) GTEST_SKIP() << "its sums are the same, and its exact part has tests of its own";
  OwnedProblem problem(SpecOf(DType::kFloat32, 1, 8, 8), {kSanitized ? 3000 : 30000},
                       {kSanitized ? 3000 : 60000});
  problem.Randomize(random_);
  // Means away from zero, so that their errors are noticed.
  for (int64_t i = 0; i < problem.query.size(); ++i) {
    problem.query.Set(i, problem.query.Get(i) + static_cast<double>(i % 8) / 4);
  }
  Run(problem);
  // One row is enough: all are the centroid's row, which is exact attention of the mean.
  OwnedProblem mean(problem.spec, {1}, {static_cast<int32_t>(problem.view.key_tokens())});
  for (int64_t e = 0; e < 8; ++e) {
    double sum = 0;
    for (int64_t i = 0; i < problem.view.query_tokens(); ++i) sum += problem.query.Get(i * 8 + e);
    mean.query.Set(e, sum / static_cast<double>(problem.view.query_tokens()));
  }
  mean.view.key = problem.key.data();
  mean.view.value = problem.value.data();
  const std::vector<double> expected = VanillaOfTheSame(mean);
  mean.view.value = mean.value.data();
  for (int64_t i = 0; i < mean.value.size(); ++i) mean.value.Set(i, std::abs(problem.value.Get(i)));
  const std::vector<double> size = VanillaOfTheSame(mean);
  for (int64_t e = 0; e < 8; ++e) {
    EXPECT_NEAR(problem.Output(0, 0, e), expected[e], 4 * 0x1p-24 * size[e]);
  }
}

// Products of queries and keys whose squares exceed float32 must not overflow, nor may keys whose
// sums exceed float32 while their scores do not.
TEST_P(ClusteredCpuTest, HugeScoresAndKeysDoNotOverflow) {
  ForOptions(SpecOf(DType::kFloat32, 6, 8, 8, 2, 4), [&](const Spec& spec) {
    for (const auto& [queries, keys] :
         {std::pair(1e3, 1e3), std::pair(1e9, 1e9), std::pair(1e17, 1e17), std::pair(0.0, 5e37),
          std::pair(1e-38, 5e37)}) {
      OwnedProblem problem(spec, {60}, {1200});
      problem.Randomize(random_, queries, keys);
      Run(problem);
      for (int64_t i = 0; i < problem.output.size(); ++i) {
        ASSERT_LE(std::abs(problem.output.Get(i)), 10) << queries << " times " << keys;
      }
    }
  });
}

}  // namespace
}  // namespace castor::attention

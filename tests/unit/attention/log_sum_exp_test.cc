// The log-sum-exp of every row of the CPU's variant table that returns one: against the
// double-precision twins, alone and in batches.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "tests/support/attention/clustered_problem.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"
#include "tests/support/twins/clustered.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {
namespace {

using RestMass = ImprovedClustered::RestMass;

// Relative, or absolute below 1: 1.5e-6 in 2,000 random problems.
constexpr double kTolerance = 4e-6;

std::vector<double> RowsOf(const OwnedProblem& problem,
                           std::vector<double>* log_sum_exp = nullptr) {
  return std::holds_alternative<Vanilla>(problem.spec.kernel)
             ? VanillaReference(problem.spec, problem.view, log_sum_exp)
             : ClusteredReference(problem.spec, problem.view, log_sum_exp);
}

std::vector<double> Reference(const OwnedProblem& problem) {
  std::vector<double> log_sum_exp;
  RowsOf(problem, &log_sum_exp);
  return log_sum_exp;
}

class LogSumExpTest : public VariantTest {
 protected:
  // This row's kernel: with a causal mask or options beyond the paper in some rounds.
  Spec SpecOf(DType dtype, int round, int64_t heads, int64_t head_dim, int64_t value_dim) {
    Kernel kernel = Vanilla{.causal = round % 4 == 1};
    if (GetParam().kernel == KernelName::kClustered) {
      kernel = PlainClusters(UpTo(30), random_());
    } else if (GetParam().kernel == KernelName::kImprovedClustered) {
      ImprovedClustered improved = ImprovedClusters(UpTo(30), UpTo(40), random_());
      if (round % 2 == 1) {
        improved.rest_mass = RestMass::kQuery;
        improved.rest_groups = UpTo(8);
      }
      kernel = improved;
    }
    Spec spec = MakeSpec(dtype, std::move(kernel), heads, head_dim, value_dim);
    if (ClusteringOf(spec.kernel) != nullptr && round % 4 >= 2) {
      ClusteringOf(spec).clustering = Clustered::Clustering::kQuerySpace;
    }
    spec.log_sum_exp = true;
    return spec;
  }

  template <typename F>
  static void ClusteringOfAny(Spec& spec, F f) {
    if (ClusteringOf(spec.kernel) != nullptr) f(ClusteringOf(spec));
  }

  // The first sequence of `to`: the queries of `from`, and its keys and values at `rows`.
  static void CopyRows(const OwnedProblem& from, OwnedProblem& to,
                       const std::vector<int32_t>& rows) {
    for (int64_t i = 0; i < to.query.size(); ++i) to.query.Set(i, from.query.Get(i));
    const int64_t row = to.spec.heads * to.spec.head_dim;
    for (size_t j = 0; j < rows.size(); ++j) {
      for (int64_t e = 0; e < row; ++e) {
        const auto at = static_cast<int64_t>(j) * row + e;
        to.key.Set(at, from.key.Get(rows[j] * row + e));
        to.value.Set(at, from.value.Get(rows[j] * row + e));
      }
    }
  }

  bool vanilla() const { return GetParam().kernel == KernelName::kVanilla; }

  bool Randomize(OwnedProblem& problem, double query_factor = 1,
                 int tries = std::numeric_limits<int>::max()) {
    if (!vanilla()) return RandomizeWithMargins(problem, random_, query_factor, 1, tries);
    problem.Randomize(random_, query_factor);
    return true;
  }

  // Each row's within float32's rounding of the terms that it is made of, of size `unit`.
  static void ExpectRight(const OwnedProblem& problem, double tolerance = kTolerance,
                          double unit = 1) {
    const std::vector<double> expected = Reference(problem);
    ASSERT_EQ(expected.size(), problem.log_sum_exp.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(IsNear(problem.log_sum_exp[i], expected[i], tolerance, unit))
          << "row " << i << ": " << problem.log_sum_exp[i] << " for " << expected[i] << ", "
          << Describe(problem.spec);
    }
  }
};

TEST_P(LogSumExpTest, MatchesTheReferenceOnRandomShapes) {
  const int rounds = Scaled(vanilla() ? 120 : 48);
  int tested = 0;
  for (int round = 0; round < rounds; ++round) {
    Spec spec =
        WithSharedHeads(SpecOf(kFloatTypes[round % 3], round, UpTo(4), UpTo(100), UpTo(100)));
    const RandomScores scores(spec, random_);
    const int longest = vanilla() ? 600 : 300;
    std::vector<int32_t> query_lengths;
    std::vector<int32_t> key_lengths;
    for (int sequences = UpTo(4); sequences > 0; --sequences) {
      query_lengths.push_back(UpTo(sequences == 1 ? longest : 60));
      key_lengths.push_back(UpTo(sequences == 1 ? longest : 60));
    }
    const Gaps gaps = {UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1};
    OwnedProblem problem(spec, query_lengths, key_lengths, gaps);
    const double query_factor = round % 5 == 0 ? 5 : 1;
    if (!Randomize(problem, query_factor, 20)) continue;
    ++tested;
    SCOPED_TRACE(testing::Message() << "round " << round);
    Run(problem);
    ExpectRight(problem, kTolerance, query_factor);
    EXPECT_LE(RelativeError(problem, RowsOf(problem)), Tolerance(spec.dtype));
  }
  EXPECT_GE(2 * tested, rounds);
}

// Tiles that share keys; spans of keys in which top keys are found, displaced and put back.
TEST_P(LogSumExpTest, MatchesTheReferenceOverManyTokens) {
  for (int round = 0; round < 4; ++round) {
    OwnedProblem problem(SpecOf(DType::kFloat32, round, 2, 24, 20), {600}, {2500});
    Randomize(problem);
    Run(problem);
    ExpectRight(problem);
  }
}

TEST_P(LogSumExpTest, TakesAnyScale) {
  for (const double scale : {0.0, 1.0, -1.0, 1e-6, 3.0, -0.25, 1e30, -1e30}) {
    for (int round = 0; round < 4; ++round) {
      Spec spec = SpecOf(DType::kFloat32, round, 2, 16, 16);
      spec.softmax_scale = scale;
      OwnedProblem problem(spec, {50}, {50});
      Randomize(problem);
      Run(problem);
      SCOPED_TRACE(testing::Message() << "scale " << scale);
      // Between scores that differ by 1e29, a rest's mean key is one key, up to its last digit, and
      // the last digit of a score may choose a row's value.
      const bool huge = std::abs(scale) > 1e6;
      ExpectRight(problem, huge ? 1e-5 : kTolerance, huge ? std::abs(scale) : 1);
      if (huge) continue;
      EXPECT_LE(RelativeError(problem, RowsOf(problem)), Tolerance(DType::kFloat32));
    }
  }
}

// -Inf would say that the row sees no key.
TEST_P(LogSumExpTest, IsTheNearestNumberWhereFloat32HoldsNoSuchScore) {
  for (const double sign : {1.0, -1.0}) {
    Spec spec = SpecOf(DType::kFloat32, 0, 1, 1, 1);
    spec.softmax_scale = 1e38;
    OwnedProblem problem(spec, {1}, {1});
    problem.query.Set(0, 100);
    problem.key.Set(0, sign);
    Run(problem);
    EXPECT_EQ(problem.log_sum_exp[0], sign * std::numeric_limits<float>::max());
    EXPECT_EQ(problem.output.Get(0), problem.value.Get(0));
  }
}

TEST_P(LogSumExpTest, AskingChangesNoByteOfTheOutput) {
  for (int round = 0; round < 6; ++round) {
    Spec spec = SpecOf(kFloatTypes[round % 3], round, 3, 32, 40);
    OwnedProblem asked(spec, {400, 3}, {400, 3});
    asked.Randomize(random_);
    Run(asked);
    spec.log_sum_exp = false;
    OwnedProblem plain(spec, {400, 3}, {400, 3});
    for (int64_t s = 0; s < 2; ++s) CopySequence(asked, s, plain, s);
    Run(plain);
    EXPECT_EQ(asked.output.bytes(), plain.output.bytes()) << Describe(spec);
  }
}

// Biases of keys are those of tokens that were merged: n of a kind weigh n times as much.
TEST_P(LogSumExpTest, ABiasOfLnNIsNOfAKind) {
  const bool improved = GetParam().kernel == KernelName::kImprovedClustered;
  for (int round = 0; round < 8; ++round) {
    Spec spec = SpecOf(DType::kFloat32, round, 2, 16, 16);
    if (vanilla()) spec.kernel = Vanilla{};
    // Top keys of which there are several would leave fewer places to others.
    if (improved) std::get<ImprovedClustered>(spec.kernel).topk = 1000;
    ClusteringOfAny(spec, [](Clustered& c) { c.clustering = Clustered::Clustering::kHash; });
    constexpr int32_t kKeys = 300;
    spec.key_bias_heads = 1;
    OwnedProblem merged(spec, {50}, {kKeys});
    Randomize(merged);
    std::vector<int32_t> of;
    for (int32_t j = 0; j < kKeys; ++j) {
      const int copies = UpTo(5) - 1;
      of.insert(of.end(), copies, j);
      merged.key_bias[j] = static_cast<float>(std::log(copies));  // -Inf: none
    }
    spec.key_bias_heads = 0;
    OwnedProblem several(spec, {50}, {static_cast<int32_t>(of.size())});
    CopyRows(merged, several, of);
    Run(merged);
    Run(several);
    for (size_t i = 0; i < merged.log_sum_exp.size(); ++i) {
      ASSERT_TRUE(IsNear(merged.log_sum_exp[i], several.log_sum_exp[i], kTolerance))
          << merged.log_sum_exp[i] << " for " << several.log_sum_exp[i] << ", row " << i;
    }
    const auto at = [](const Elements& elements) {
      return [&elements](int64_t i) { return elements.Get(i); };
    };
    EXPECT_LE(Distance(several.output.size(), at(merged.output), at(several.output)), 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, LogSumExpTest,
                         testing::ValuesIn(CpuRows({KernelName::kVanilla, KernelName::kClustered,
                                                    KernelName::kImprovedClustered})),
                         NameOfRow);

}  // namespace
}  // namespace castor::attention

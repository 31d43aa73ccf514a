// The options of clustered and improved clustered attention that are not their paper's, on the CPU:
// clusters of the queries themselves, and each query's own mass of the rest. Against the twin, and
// what follows from the definitions.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/attention/parallel.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/attention/clustered/clustered_cpu_fixture.h"

namespace castor::attention {
namespace {

using RestMass = ImprovedClustered::RestMass;

class ClusteredOptionsTest : public ClusteredCpuTest {
 protected:
  // Calls f(spec) with each combination of options that `spec` can have, its own left out.
  template <typename F>
  static void ForOptions(Spec spec, F f) {
    for (const auto clustering :
         {Clustered::Clustering::kHash, Clustered::Clustering::kQuerySpace}) {
      for (const auto mass : {RestMass::kCentroid, RestMass::kQuery}) {
        ClusteringOf(spec).clustering = clustering;
        if (auto* kernel = std::get_if<ImprovedClustered>(&spec.kernel)) {
          kernel->rest_mass = mass;
        } else if (mass == RestMass::kQuery) {
          continue;
        }
        if (OptionBeyondThePaper(spec.kernel).empty()) continue;
        SCOPED_TRACE(Describe(spec));
        f(spec);
      }
    }
  }
};

TEST_P(ClusteredOptionsTest, MatchTheReferenceOnRandomShapes) {
  for (int round = 0; round < Scaled(12); ++round) {
    const Spec any =
        SpecOf(kFloatTypes[round % 3], UpTo(30), UpTo(80), UpTo(80), UpTo(3), UpTo(40));
    std::vector<int32_t> query_lengths;
    std::vector<int32_t> key_lengths;
    for (int sequences = UpTo(4); sequences > 0; --sequences) {
      query_lengths.push_back(UpTo(sequences == 1 ? 250 : 50));
      key_lengths.push_back(UpTo(sequences == 1 ? 400 : 50));
    }
    const Gaps gaps = {UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1};
    const int iterations = UpTo(4);
    ForOptions(any, [&](Spec spec) {
      ClusteringOf(spec).iterations = iterations;
      OwnedProblem problem(spec, query_lengths, key_lengths, gaps);
      RandomizeWithMargins(problem, random_);
      ExpectRight(problem);
    });
  }
}

// Several spans of keys, so that top keys are found, displaced and put back, and several ranges of
// queries.
TEST_P(ClusteredOptionsTest, MatchTheReferenceOverManyTokens) {
  for (const int keys : {1023, 1025, 3000}) {
    ForOptions(SpecOf(DType::kFloat32, 9, 24, 20, 1, 33), [&](const Spec& spec) {
      OwnedProblem problem(spec, {40}, {keys});
      RandomizeWithMargins(problem, random_, 2);
      ExpectRight(problem);
    });
  }
  ForOptions(SpecOf(DType::kFloat32, 6, 8, 8, 1, 12), [&](const Spec& spec) {
    OwnedProblem problem(spec, {2100}, {70});
    RandomizeAroundCentres(problem, 6, random_);
    while (QuerySpaceMargin(spec, problem.view) < 1e-6 || TopMargin(spec, problem.view) < 2e-6) {
      RandomizeAroundCentres(problem, 6, random_);
    }
    MakeHashMargins(problem, random_);
    ExpectRight(problem);
  });
}

TEST_P(ClusteredOptionsTest, TakeTheDimensionsThatModelsHave) {
  for (const int64_t dim : {1, 3, 32, 40, 72, 128}) {
    ForOptions(SpecOf(DType::kFloat32, 7, dim, dim, 2), [&](const Spec& spec) {
      OwnedProblem problem(spec, {60, 3}, {130, 3});
      RandomizeWithMargins(problem, random_);
      ExpectRight(problem);
    });
  }
}

TEST_P(ClusteredOptionsTest, TakeAnyScale) {
  for (const double scale : {0.0, 1.0, -1.0, 1e-6, 3.0, -0.25, 1e30, -1e30}) {
    ForOptions(SpecOf(DType::kFloat32, 5, 16, 16, 2, 4), [&](Spec spec) {
      spec.softmax_scale = scale;
      OwnedProblem problem(spec, {50}, {60});
      // Between scores that differ by 1e29, a rest's mean key is one key, up to its last digit.
      RandomizeWithMargins(problem, random_);
      SCOPED_TRACE(testing::Message() << "scale " << scale);
      if (std::abs(scale) < 1e6) return ExpectRight(problem);
      Run(problem);
      for (int64_t i = 0; i < problem.output.size(); ++i) {
        EXPECT_TRUE(std::isfinite(problem.output.Get(i)));
      }
    });
  }
}

TEST_P(ClusteredOptionsTest, ExactWhereTheDefinitionIs) {
  for (int round = 0; round < 3; ++round) {
    const DType dtype = kFloatTypes[round];
    // A cluster for each query, which is then alone in it.
    ForOptions(SpecOf(dtype, 1000, 16, 24, 2), [&](const Spec& spec) {
      OwnedProblem problem(spec, {130, 1, 9}, {150, 30, 9});
      RandomizeWithMargins(problem, random_);
      ExpectVanilla(problem);
    });
    // One query; one key; equal queries.
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
    });
    // No key is left out.
    if (!improved()) continue;
    ForOptions(SpecOf(dtype, 4, 16, 24, 2, 1024), [&](const Spec& spec) {
      OwnedProblem problem(spec, {UpTo(200), UpTo(20)}, {round < 1 ? 1024 : UpTo(300), UpTo(20)});
      problem.Randomize(random_, 2);
      ExpectVanilla(problem);
    });
  }
}

TEST_P(ClusteredOptionsTest, WeightsOfEveryRowSumToOne) {
  ForOptions(SpecOf(DType::kFloat32, 9, 16, 1, 2), [&](const Spec& spec) {
    for (const double factor : {1.0, 4.0, 1e4}) {
      OwnedProblem problem(spec, {150, 40}, {1300, 70});
      problem.Randomize(random_, factor, factor);
      for (int64_t i = 0; i < problem.value.size(); ++i) problem.value.Set(i, 1);
      Run(problem);
      for (int64_t i = 0; i < problem.output.size(); ++i) {
        ASSERT_NEAR(problem.output.Get(i), 1, 2e-6) << "factor " << factor;
      }
    }
  });
}

// By convexity: a member's top keys never get less than exact attention gives them.
TEST_P(ClusteredOptionsTest, OwnMassNeverExceedsTheTrueMass) {
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

TEST_P(ClusteredOptionsTest, EqualQueriesGetEqualRows) {
  for (const DType dtype : kFloatTypes) {
    ForOptions(SpecOf(dtype, 7, 24, 20, 1, 12), [&](const Spec& spec) {
      OwnedProblem problem(spec, {300}, {200});
      problem.Randomize(random_);
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

// Keys that are all the same leave a metric of zeros: one cluster, and equal weights.
TEST_P(ClusteredOptionsTest, EqualKeysAreNoTrouble) {
  ForOptions(SpecOf(DType::kFloat32, 5, 8, 8, 1, 16), [&](const Spec& spec) {
    OwnedProblem problem(spec, {60}, {300});
    problem.Randomize(random_);
    for (int64_t i = 8; i < problem.key.size(); ++i) problem.key.Set(i, problem.key.Get(i % 8));
    ExpectVanilla(problem);
  });
}

// Products of queries and keys far beyond what squares of float32 hold.
TEST_P(ClusteredOptionsTest, HugeScoresDoNotOverflow) {
  ForOptions(SpecOf(DType::kFloat32, 6, 8, 8, 2, 4), [&](const Spec& spec) {
    for (const double factor : {1e3, 1e9, 1e17}) {
      OwnedProblem problem(spec, {60}, {1200});
      problem.Randomize(random_, factor, factor);
      Run(problem);
      for (int64_t i = 0; i < problem.output.size(); ++i) {
        ASSERT_LE(std::abs(problem.output.Get(i)), 10) << "factor " << factor;
      }
    }
  });
}

// Sums of such keys are beyond float32, whose scores are not.
TEST_P(ClusteredOptionsTest, HugeKeysDoNotOverflow) {
  ForOptions(SpecOf(DType::kFloat32, 6, 8, 8, 2, 4), [&](const Spec& spec) {
    for (const double factor : {0.0, 1e-38}) {
      OwnedProblem problem(spec, {60}, {1200});
      problem.Randomize(random_, factor, 5e37);
      Run(problem);
      for (int64_t i = 0; i < problem.output.size(); ++i) {
        ASSERT_LE(std::abs(problem.output.Get(i)), 10) << "factor " << factor;
      }
    }
  });
}

TEST_P(ClusteredOptionsTest, NotANumberStaysInItsSequence) {
  ForOptions(SpecOf(DType::kFloat32, 6, 16, 16, 2), [&](const Spec& spec) {
    for (const double poison : {double{NAN}, double{INFINITY}}) {
      OwnedProblem problem(spec, {20, 300, 10}, {20, 1200, 10});
      OwnedProblem clean(spec, {20, 300, 10}, {20, 1200, 10});
      std::mt19937 same = random_;
      problem.Randomize(random_);
      clean.Randomize(same);
      for (int64_t i = 20 * 32; i < 320 * 32; i += 7) problem.query.Set(i, poison);
      for (int64_t i = 20 * 32; i < 1220 * 32; i += 5) problem.key.Set(i, poison);
      Run(problem);
      Run(clean);
      for (int64_t token = 0; token < 330; ++token) {
        if (token >= 20 && token < 320) continue;
        for (int64_t i = 0; i < 32; ++i) {
          ASSERT_EQ(problem.Output(token, i / 16, i % 16), clean.Output(token, i / 16, i % 16));
        }
      }
    }
  });
}

TEST_P(ClusteredOptionsTest, AloneAndInAnyBatchGiveTheSameBytes) {
  for (const DType dtype : kFloatTypes) {
    ForOptions(SpecOf(dtype, 20, 32, 40, 3, 12), [&](const Spec& spec) {
      std::vector<std::unique_ptr<OwnedProblem>> owned;
      std::vector<OwnedProblem*> problems;
      for (int i = 0; i < 4; ++i) {
        const std::vector<int32_t> lengths = {UpTo(kSanitized ? 300 : 1300), 3};
        owned.push_back(std::make_unique<OwnedProblem>(spec, lengths, lengths));
        owned.back()->Randomize(random_);
        problems.push_back(owned.back().get());
      }
      ExpectTheSameAloneAndTogether(problems);
    });
  }
}

// One sequence: threads share a head's clustering. Several: each has heads of its own.
TEST_P(ClusteredOptionsTest, AnyNumberOfThreadsGivesTheSameBytes) {
  const int before = ParallelWorkers();
  for (const auto& lengths : {std::vector<int32_t>{kSanitized ? 1500 : 5000},
                              std::vector<int32_t>{1200, 5, 300, 1, 800}}) {
    ForOptions(SpecOf(DType::kFloat32, 60, 32, 32, 2, 20), [&](const Spec& spec) {
      OwnedProblem problem(spec, lengths, lengths);
      problem.Randomize(random_);
      SetParallelWorkers(1);
      Run(problem);
      const std::vector<std::byte> alone = problem.output.bytes();
      for (const int threads : {2, 3, 16}) {
        SetParallelWorkers(threads);
        problem.output.Clear();
        Run(problem);
        ASSERT_EQ(problem.output.bytes(), alone) << threads << " threads";
      }
    });
  }
  SetParallelWorkers(before);
}

INSTANTIATE_TEST_SUITE_P(Table, ClusteredOptionsTest,
                         testing::ValuesIn(CpuRows({KernelName::kClustered,
                                                    KernelName::kImprovedClustered})),
                         NameOfRow);

}  // namespace
}  // namespace castor::attention

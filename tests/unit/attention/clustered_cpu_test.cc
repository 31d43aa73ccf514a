// Every row of the CPU's variant table that computes clustered or improved clustered attention,
// against the plain double-precision twin and the definition's invariants.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "engine/attention/variants.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/attention/clustered_problem.h"

namespace castor::attention {
namespace {

class ClusteredCpuTest : public testing::TestWithParam<Variant> {
 protected:
  ClusteredCpuTest() : seed_(FreshSeed()), random_(seed_), trace_(__FILE__, __LINE__, seed_) {}

  void SetUp() override {
    if (!GetParam().supports(MakeSpec(DType::kFloat32, 4, 1, 1))) {
      GTEST_SKIP() << "this processor cannot run " << GetParam().backend;
    }
  }

  static bool improved() { return GetParam().kernel == KernelName::kImprovedClustered; }

  // A spec with this row's kernel; `topk` is for those that have one.
  Spec MakeSpec(DType dtype, int32_t clusters, int64_t head_dim, int64_t value_dim,
                int64_t heads = 1, int32_t topk = 8) {
    const uint64_t seed = random_();
    return ClusteredSpec(dtype,
                         improved() ? Kernel(ImprovedClusters(clusters, topk, seed))
                                    : Kernel(PlainClusters(clusters, seed)),
                         heads, head_dim, value_dim);
  }

  static Clustered& ClusteringOf(Spec& spec) {
    if (auto* kernel = std::get_if<ImprovedClustered>(&spec.kernel)) return *kernel;
    return std::get<Clustered>(spec.kernel);
  }

  static void Run(const OwnedProblem& problem) { Run(problem.spec, {&problem.view, 1}); }
  static void Run(const Spec& spec, std::span<const Problem> problems) {
    ASSERT_TRUE(GetParam().supports(spec));
    const absl::Status status = GetParam().run(spec, problems);
    ASSERT_TRUE(status.ok()) << status;
  }

  static void ExpectRight(OwnedProblem& problem) {
    Run(problem);
    EXPECT_LE(RelativeError(problem, ClusteredReference(problem.spec, problem.view)),
              Tolerance(problem.spec.dtype));
  }

  static void ExpectVanilla(OwnedProblem& problem) {
    Run(problem);
    EXPECT_LE(RelativeError(problem, VanillaOfTheSame(problem)), Tolerance(problem.spec.dtype));
  }

  int UpTo(int most) { return static_cast<int>(random_() % most) + 1; }
  static DType DTypeOf(int round) {
    return std::array{DType::kFloat32, DType::kFloat16, DType::kBFloat16}[round % 3];
  }

  const uint32_t seed_;
  std::mt19937 random_;
  testing::ScopedTrace trace_;
};

TEST_P(ClusteredCpuTest, MatchesTheReferenceOnRandomShapes) {
  for (int round = 0; round < Scaled(60); ++round) {
    Spec spec = MakeSpec(DTypeOf(round), UpTo(40), UpTo(100), UpTo(100), UpTo(4), UpTo(40));
    ClusteringOf(spec).bits = round % 3 == 0 ? UpTo(64) : 63;
    ClusteringOf(spec).hash_bias = round % 5 != 0;
    ClusteringOf(spec).iterations = UpTo(12);
    std::vector<int32_t> query_lengths;
    std::vector<int32_t> key_lengths;
    for (int sequences = UpTo(4); sequences > 0; --sequences) {
      query_lengths.push_back(UpTo(sequences == 1 ? 300 : 60));
      key_lengths.push_back(UpTo(sequences == 1 ? 300 : 60));
    }
    const Gaps gaps = {UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1};
    OwnedProblem problem(spec, query_lengths, key_lengths, gaps);
    RandomizeWithMargins(problem, random_);
    SCOPED_TRACE(testing::Message()
                 << "round " << round << ": " << NameOf(spec.dtype) << " heads " << spec.heads
                 << " dims " << spec.head_dim << ", " << spec.value_dim);
    ExpectRight(problem);
  }
}

// Several spans of keys, so that top keys come, are displaced and are put back.
TEST_P(ClusteredCpuTest, MatchesTheReferenceOverManyKeys) {
  for (const auto& [keys, topk] :
       {std::pair(1023, 32), std::pair(1024, 32), std::pair(1025, 5), std::pair(3000, 32),
        std::pair(2500, 1), std::pair(2100, 200), std::pair(1100, 1024), std::pair(2000, 64)}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, 9, 24, 20, 1, topk), {40}, {keys});
    RandomizeWithMargins(problem, random_, 2);
    SCOPED_TRACE(testing::Message() << keys << " keys, top " << topk);
    ExpectRight(problem);
  }
}

// Keys in rising and falling order of their scores: every key displaces one, or none does.
TEST_P(ClusteredCpuTest, OrderedKeysAreFoundAllTheSame) {
  for (const bool rising : {false, true}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, 3, 4, 6, 1, 16), {12}, {2600});
    problem.Randomize(random_, 0.1);
    for (int64_t i = 0; i < 12; ++i) problem.query.Set(i * 4, 3 + 0.01 * static_cast<double>(i));
    for (int64_t j = 0; j < 2600; ++j) {
      for (int64_t e = 0; e < 4; ++e) problem.key.Set(j * 4 + e, 0);
      problem.key.Set(j * 4, 0.001 * static_cast<double>(rising ? j : -j));
    }
    MakeHashMargins(problem, random_);
    ExpectRight(problem);
  }
}

TEST_P(ClusteredCpuTest, TakesTheDimensionsThatModelsHave) {
  for (const int64_t dim : {1, 2, 3, 32, 40, 64, 72, 80, 96, 128, 192, 256, 576}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, 7, dim, dim, 2), {60, 3}, {130, 3});
    RandomizeWithMargins(problem, random_);
    SCOPED_TRACE(testing::Message() << "dim " << dim);
    ExpectRight(problem);
  }
}

TEST_P(ClusteredCpuTest, TakesEveryNumberOfClustersAndTopKeys) {
  for (const int clusters :
       {1, 7, 8, 15, 16, 17, 23, 24, 25, 47, 48, 49, 100, 191, 192, 193, 250}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, clusters, 8, 12, 1, UpTo(60)), {400}, {90});
    RandomizeWithMargins(problem, random_);
    SCOPED_TRACE(testing::Message() << clusters << " clusters");
    ExpectRight(problem);
  }
}

TEST_P(ClusteredCpuTest, TakesAnyScale) {
  for (const double scale : {0.0, 1.0, -1.0, 1e-6, 3.0, -0.25, 1e30, -1e30}) {
    Spec spec = MakeSpec(DType::kFloat32, 5, 16, 16, 2, 4);
    spec.softmax_scale = scale;
    OwnedProblem problem(spec, {50}, {60});
    RandomizeWithMargins(problem, random_);
    SCOPED_TRACE(testing::Message() << "scale " << scale);
    ExpectRight(problem);
  }
}

TEST_P(ClusteredCpuTest, OneQueryOrOneKeyIsVanilla) {
  for (const int keys : {1, 2, 40, 1500}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, 100, 16, 8, 3), {1}, {keys});
    RandomizeWithMargins(problem, random_);
    ExpectVanilla(problem);
  }
  OwnedProblem problem(MakeSpec(DType::kFloat32, 100, 16, 8, 3), {200}, {1});
  problem.Randomize(random_);
  ExpectVanilla(problem);
}

TEST_P(ClusteredCpuTest, AClusterPerQueryIsVanilla) {
  for (int round = 0; round < 9; ++round) {
    OwnedProblem problem(MakeSpec(DTypeOf(round), 1000, 16, 24, 2), {130, 1, 9}, {150, 3, 9});
    RandomizeWithMargins(problem, random_);
    // With 63 bits Gaussian queries have codes of their own; Lloyd's start takes every one.
    ExpectVanilla(problem);
  }
}

TEST_P(ClusteredCpuTest, TopKeysBeyondAllKeysIsVanilla) {
  if (!improved()) GTEST_SKIP() << "has no top keys";
  for (int round = 0; round < 12; ++round) {
    OwnedProblem problem(MakeSpec(DTypeOf(round), 4, 16, 24, 2, 1024), {UpTo(200), UpTo(20)},
                         {round < 3 ? 1024 : UpTo(300), UpTo(20)});
    problem.Randomize(random_, 2);
    ExpectVanilla(problem);
  }
}

TEST_P(ClusteredCpuTest, WeightsOfEveryRowSumToOne) {
  OwnedProblem problem(MakeSpec(DType::kFloat32, 9, 16, 1, 2), {150, 40}, {1300, 70});
  problem.Randomize(random_, 2);
  for (int64_t i = 0; i < problem.value.size(); ++i) problem.value.Set(i, 1);
  Run(problem);
  for (int64_t i = 0; i < problem.output.size(); ++i) EXPECT_NEAR(problem.output.Get(i), 1, 2e-6);
}

// Theorem of section 3.3: in L1 distance to the exact weights no row gets worse.
TEST_P(ClusteredCpuTest, RefiningNeverHurtsARow) {
  if (!improved()) GTEST_SKIP() << "does not refine";
  constexpr int32_t kKeys = 90;
  for (const int32_t topk : {1, 4, 16, 50}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, 6, 8, kKeys, 2, topk), {120}, {kKeys});
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

// Proposition 1 of the paper, with scale 1: a member's row differs from its exact one by no more
// than its query from the centroid, times |K|.
TEST_P(ClusteredCpuTest, RowsAreAsCloseAsQueriesToTheirCentroids) {
  if (improved()) GTEST_SKIP() << "a property of the shared rows";
  constexpr int32_t kKeys = 24;
  OwnedProblem problem(MakeSpec(DType::kFloat32, 10, 6, kKeys), {100}, {kKeys});
  problem.spec.softmax_scale = 1;
  RandomizeWithMargins(problem, random_);
  MakeValuesIdentity(problem);
  double key_norm = 0;  // Frobenius, which bounds the spectral norm
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
    OwnedProblem problem(MakeSpec(DTypeOf(round), 7, 24, 20, 1, 12), {300}, {200});
    problem.Randomize(random_);
    // Half of them copies of the others, at random places.
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

TEST_P(ClusteredCpuTest, AllQueriesEqualIsVanilla) {
  OwnedProblem problem(MakeSpec(DType::kFloat32, 20, 16, 16, 2), {300}, {700});
  problem.Randomize(random_);
  for (int64_t i = 32; i < problem.query.size(); ++i) {
    problem.query.Set(i, problem.query.Get(i % 32));
  }
  ExpectVanilla(problem);
}

// Every score is the same: the lowest keys are the top ones.
TEST_P(ClusteredCpuTest, TiesGoToTheLowestKeys) {
  for (const int32_t keys : {40, 1024, 2300}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, 5, 8, 8, 1, 16), {60}, {keys});
    problem.Randomize(random_);
    MakeHashMargins(problem, random_);
    for (int64_t i = 0; i < problem.key.size(); ++i) problem.key.Set(i, problem.key.Get(i % 8));
    ExpectRight(problem);
    // The same with one that is better and one that is worse.
    for (int64_t e = 0; e < 8; ++e) {
      problem.key.Set(17 * 8 + e, 4 * problem.key.Get(e));
      problem.key.Set(3 * 8 + e, -4 * problem.key.Get(e));
    }
    ExpectRight(problem);
  }
}

TEST_P(ClusteredCpuTest, HugeScoresDoNotOverflow) {
  for (const double factor : {30.0, 1e3, 1e12}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, 6, 8, 8, 2, 4), {60}, {1200});
    RandomizeWithMargins(problem, random_, factor, factor);
    // Where the softmax is all but a maximum, rounding must not change which score that is; and an
    // exponent's rounding error is the score's, times it.
    if (factor < 100) {
      Run(problem);
      EXPECT_LE(RelativeError(problem, ClusteredReference(problem.spec, problem.view)), 1e-3);
    } else {
      Run(problem);
      EXPECT_LE(RelativeError(problem, ClusteredReference(problem.spec, problem.view)),
                factor < 1e6 ? 0.5 : 1e-5);
    }
  }
}

// Nearly all of the mass is on the top keys, whose values dwarf the others, but members give those
// keys next to no weight: what is left is a sum of small numbers, not a difference of large ones.
TEST_P(ClusteredCpuTest, SmallRestsAreNotDifferences) {
  if (!improved()) GTEST_SKIP() << "has no rest";
  OwnedProblem problem(MakeSpec(DType::kFloat32, 1, 2, 4, 1, 2), {2}, {1500});
  problem.spec.softmax_scale = 1;
  problem.Randomize(random_);
  // The mean of the two queries is (5, 0); keys 700 and 1400 are its top keys. Each query has one.
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
  OwnedProblem tiny(MakeSpec(DType::kFloat16, 4, 16, 16, 2), {33}, {33});
  tiny.Randomize(random_, 1e-6, 1e-6, 1e-6);  // float16's smallest normal number is 6e-5
  MakeHashMargins(tiny, random_, 1e-6);
  ClusteringOf(tiny.spec).clusters = 1;  // with biases, all codes are the same anyway
  Run(tiny);
  // All weights are the same to a millionth, and so are rows whatever the top keys are.
  const std::vector<double> expected = VanillaOfTheSame(tiny);
  for (int64_t i = 0; i < tiny.output.size(); ++i) {
    EXPECT_NEAR(tiny.output.Get(i), expected[i], 0x1p-24) << "in units of float16's last place";
  }
  OwnedProblem queries(MakeSpec(DType::kFloat32, 4, 16, 16, 2, 40), {33}, {33});
  queries.Randomize(random_, 1e-40, 1e-40);
  ExpectVanilla(queries);
}

TEST_P(ClusteredCpuTest, StaysWithinToleranceOverManyTokens) {
  OwnedProblem problem(MakeSpec(DType::kFloat32, 1, 8, 8), {kSanitized ? 3000 : 30000},
                       {kSanitized ? 3000 : 60000});
  problem.Randomize(random_);
  // Means that are not zero, so that their errors show.
  for (int64_t i = 0; i < problem.query.size(); ++i) {
    problem.query.Set(i, problem.query.Get(i) + static_cast<double>(i % 8) / 4);
  }
  if (TopMargin(problem.spec, problem.view) < 2e-6) GTEST_SKIP() << "too near a tie";
  // One row is enough: all share the centroid's, and the exact part has a test of its own.
  Run(problem);
  OwnedProblem mean(problem.spec, {1}, {static_cast<int32_t>(problem.view.key_tokens())});
  if (improved()) return;
  for (int64_t e = 0; e < 8; ++e) {
    double sum = 0;
    for (int64_t i = 0; i < problem.view.query_tokens(); ++i) sum += problem.query.Get(i * 8 + e);
    mean.query.Set(e, sum / static_cast<double>(problem.view.query_tokens()));
  }
  mean.key = problem.key;
  mean.value = problem.value;
  mean.view.key = mean.key.data();
  mean.view.value = mean.value.data();
  const std::vector<double> expected = VanillaOfTheSame(mean);
  double error = 0;
  double norm = 0;
  for (int64_t e = 0; e < 8; ++e) {
    error += std::pow(problem.Output(0, 0, e) - expected[e], 2);
    norm += std::pow(expected[e], 2);
  }
  EXPECT_LE(std::sqrt(error / norm), 2e-5);
}

TEST_P(ClusteredCpuTest, LengthsInOneBatchMayDifferWidely) {
  OwnedProblem problem(MakeSpec(DType::kFloat32, 12, 32, 32, 2, 20), {1, 900, 2, 64, 1},
                       {1100, 1, 7, 64, 1});
  RandomizeWithMargins(problem, random_);
  ExpectRight(problem);
}

TEST_P(ClusteredCpuTest, NotANumberStaysInItsSequence) {
  for (const double poison : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
    for (int which = 0; which < 4; ++which) {
      OwnedProblem problem(MakeSpec(DType::kFloat32, 6, 16, 16, 2), {20, 300, 10}, {20, 1200, 10});
      OwnedProblem clean(problem.spec, {20, 300, 10}, {20, 1200, 10});
      std::mt19937 same = random_;
      problem.Randomize(random_);
      clean.Randomize(same);
      const int stride = which == 3 ? 1 : 7;  // all of it, or some
      if (which == 0 || which == 3) {
        for (int64_t i = 20 * 32; i < 320 * 32; i += stride) problem.query.Set(i, poison);
      }
      for (Elements* elements : {&problem.key, &problem.value}) {
        if ((which == 1) != (elements == &problem.key) && which != 3) continue;
        for (int64_t i = 20 * 32; i < 1220 * 32; i += stride) elements->Set(i, poison);
      }
      Run(problem);
      Run(clean);
      for (int64_t token = 0; token < 330; ++token) {
        if (token >= 20 && token < 320) continue;
        for (int64_t i = 0; i < 32; ++i) {
          ASSERT_EQ(problem.Output(token, i / 16, i % 16), clean.Output(token, i / 16, i % 16));
        }
      }
    }
  }
}

TEST_P(ClusteredCpuTest, AloneAndInAnyBatchGiveTheSameBytes) {
  for (int round = 0; round < 3; ++round) {
    const Spec spec = MakeSpec(DTypeOf(round), 20, 32, 40, 3, 12);
    std::vector<std::unique_ptr<OwnedProblem>> owned;
    std::vector<Problem> batch;
    std::vector<std::vector<std::byte>> alone;
    constexpr int kLongest = kSanitized ? 300 : 1300;
    for (int i = 0; i < 8; ++i) {
      const auto length = static_cast<int32_t>(UpTo(kLongest));
      owned.push_back(std::make_unique<OwnedProblem>(spec, std::vector<int32_t>{length, 3},
                                                     std::vector<int32_t>{length, 3}));
      owned.back()->Randomize(random_);
      batch.push_back(owned.back()->view);
      Run(*owned.back());
      alone.push_back(owned.back()->output.bytes());
    }
    std::shuffle(batch.begin(), batch.end(), random_);
    for (auto& problem : owned) {
      std::memset(problem->output.data(), 0xff, problem->output.bytes().size());
    }
    Run(spec, batch);
    for (size_t i = 0; i < owned.size(); ++i) EXPECT_EQ(owned[i]->output.bytes(), alone[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ClusteredCpuTest, testing::ValuesIn([] {
                           std::vector<Variant> rows;
                           for (const Variant& row : CpuVariants()) {
                             if (row.kernel == KernelName::kClustered ||
                                 row.kernel == KernelName::kImprovedClustered) {
                               rows.push_back(row);
                             }
                           }
                           return rows;
                         }()),
                         [](const auto& info) {
                           std::string name = std::string(NameOf(info.param.kernel)) + "_" +
                                              std::string(info.param.backend);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace castor::attention

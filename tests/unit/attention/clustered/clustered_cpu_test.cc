// Every row of the CPU's variant table that computes clustered or improved clustered attention,
// with every option, against the plain double-precision twin over the supported shapes and
// parameters, where it is exact, and with huge, tiny and very many numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/clustered/clustering.h"
#include "engine/attention/parallel.h"
#include "tests/support/attention/clustered_problem.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/clustered.h"

namespace castor::attention {
namespace {

using kernels::ClusterKernel;

class ClusteredCpuTest : public VariantTest {
 protected:
  using Clustering = Clustered::Clustering;
  using RestMass = ImprovedClustered::RestMass;

  static bool improved() { return GetParam().kernel == KernelName::kImprovedClustered; }

  // A spec with this row's kernel; `topk` is ignored by kernels without one.
  Spec SpecOf(DType dtype, int32_t clusters, int64_t head_dim, int64_t value_dim, int64_t heads = 1,
              int32_t topk = 8) {
    const uint64_t seed = random_();
    return MakeSpec(dtype,
                    improved() ? Kernel(ImprovedClusters(clusters, topk, seed))
                               : Kernel(PlainClusters(clusters, seed)),
                    heads, head_dim, value_dim);
  }

  // Calls f(spec) with each combination of options that the row's kernel has, its paper's first:
  // clusters of codes or of the queries themselves, the centroid's mass of the rest or each
  // query's, of one group of keys or several.
  template <typename F>
  static void ForOptions(Spec spec, F f) {
    for (const auto clustering : {Clustering::kHash, Clustering::kQuerySpace}) {
      for (const int32_t groups : {0, 1, 4}) {
        ClusteringOf(spec).clustering = clustering;
        if (auto* kernel = std::get_if<ImprovedClustered>(&spec.kernel)) {
          kernel->rest_mass = groups == 0 ? RestMass::kCentroid : RestMass::kQuery;
          kernel->rest_groups = std::max(groups, 1);
        } else if (groups > 0) {
          continue;
        }
        SCOPED_TRACE(Describe(spec));
        f(spec);
      }
    }
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
};

TEST_P(ClusteredCpuTest, MatchesTheReferenceOnRandomShapes) {
  int drawn = 0;
  int tested = 0;
  for (int round = 0; round < Scaled(40); ++round) {
    const Spec any = WithSharedHeads(
        SpecOf(kFloatTypes[round % 3], UpTo(40), UpTo(100), UpTo(100), UpTo(4), UpTo(40)));
    const int bits = round % 3 == 0 ? UpTo(64) : 63;
    const int iterations = UpTo(12);
    std::vector<int32_t> query_lengths;
    std::vector<int32_t> key_lengths;
    for (int sequences = UpTo(4); sequences > 0; --sequences) {
      query_lengths.push_back(UpTo(sequences == 1 ? 300 : 60));
      key_lengths.push_back(UpTo(sequences == 1 ? 300 : 60));
    }
    const Gaps gaps = {UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1};
    SCOPED_TRACE(testing::Message() << "round " << round);
    ForOptions(any, [&](Spec spec) {
      Clustered& clustering = ClusteringOf(spec);
      const bool hashes = clustering.clustering == Clustering::kHash;
      clustering.bits = bits;
      clustering.hash_bias = round % 5 != 0;
      clustering.iterations = hashes ? iterations : 1 + iterations / 3;
      OwnedProblem problem(spec, query_lengths, key_lengths, gaps);
      if (RandomizeWithMargins(problem, random_, 1, 1, 20)) ++tested, ExpectRight(problem);
      ++drawn;
    });
  }
  EXPECT_GE(10 * tested, 9 * drawn);
}

// Several spans of keys, so that top keys are found, displaced and put back.
TEST_P(ClusteredCpuTest, MatchesTheReferenceOverManyKeys) {
  for (const auto& [keys, topk] :
       {std::pair(1023, 32), std::pair(1024, 32), std::pair(1025, 5), std::pair(3000, 33),
        std::pair(2500, 1), std::pair(2100, 200), std::pair(1100, 1024), std::pair(2000, 64)}) {
    ForOptions(SpecOf(DType::kFloat32, 9, 24, 20, 1, topk), [&, n = keys](const Spec& spec) {
      OwnedProblem problem(spec, {40}, {n});
      RandomizeWithMargins(problem, random_, 2);
      SCOPED_TRACE(testing::Message() << n << " keys");
      ExpectRight(problem);
    });
  }
}

// Several ranges of queries.
TEST_P(ClusteredCpuTest, MatchesTheReferenceOverManyQueries) {
  ForOptions(SpecOf(DType::kFloat32, 6, 8, 8, 1, 12), [&](const Spec& spec) {
    OwnedProblem problem(spec, {2100}, {70});
    do {
      RandomizeAroundCentres(problem, 6, random_);
    } while (QuerySpaceMargin(spec, problem.view) < 1e-6 || TopMargin(spec, problem.view) < 2e-6);
    MakeHashMargins(problem, random_);
    ExpectRight(problem);
  });
}

TEST_P(ClusteredCpuTest, TakesTheDimensionsThatModelsHave) {
  for (const int64_t dim : {1, 2, 3, 32, 40, 64, 72, 80, 96, 128, 192, 256, 576}) {
    ForOptions(SpecOf(DType::kFloat32, 7, dim, dim, 2), [&](const Spec& spec) {
      OwnedProblem problem(spec, {60, 3}, {130, 3});
      RandomizeWithMargins(problem, random_);
      ExpectRight(problem);
    });
  }
}

TEST_P(ClusteredCpuTest, TakesEveryNumberOfClustersAndTopKeys) {
  for (const int clusters :
       {1, 7, 8, 15, 16, 17, 23, 24, 25, 47, 48, 49, 100, 191, 192, 193, 250}) {
    OwnedProblem problem(SpecOf(DType::kFloat32, clusters, 8, 12, 1, UpTo(60)), {400}, {90});
    RandomizeWithMargins(problem, random_);
    SCOPED_TRACE(testing::Message() << clusters << " clusters");
    ExpectRight(problem);
  }
}

TEST_P(ClusteredCpuTest, TakesEveryNumberOfGroups) {
  if (!improved()) GTEST_SKIP() << "has no rest";
  for (const int groups : {2, 3, 7, 8, 9, 15, 16, 17, 33, 64}) {
    for (const int keys : {1, 40, 90, 1500}) {
      OwnedProblem problem(SpecOf(DType::kFloat32, 20, 24, 12, 1, UpTo(60)), {100}, {keys});
      auto& kernel = std::get<ImprovedClustered>(problem.spec.kernel);
      kernel.rest_mass = RestMass::kQuery;
      kernel.rest_groups = groups;
      RandomizeWithMargins(problem, random_);
      SCOPED_TRACE(testing::Message() << groups << " groups of " << keys << " keys");
      ExpectRight(problem);
    }
  }
}

// Keys in rising or falling order of their scores: every key displaces another, or none does.
TEST_P(ClusteredCpuTest, OrderedKeysAreFoundAllTheSame) {
  for (const bool rising : {false, true}) {
    OwnedProblem problem(SpecOf(DType::kFloat32, 3, 4, 6, 1, 16), {12}, {2600});
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

// All scores are equal, so the lowest keys are the top ones.
TEST_P(ClusteredCpuTest, TiesGoToTheLowestKeys) {
  for (const int32_t keys : {40, 1024, 2300}) {
    OwnedProblem problem(SpecOf(DType::kFloat32, 5, 8, 8, 1, 16), {60}, {keys});
    problem.Randomize(random_);
    MakeHashMargins(problem, random_);
    for (int64_t i = 0; i < problem.key.size(); ++i) problem.key.Set(i, problem.key.Get(i % 8));
    ExpectRight(problem);
    // The same with one better and one worse key.
    for (int64_t e = 0; e < 8; ++e) {
      problem.key.Set(17 * 8 + e, 4 * problem.key.Get(e));
      problem.key.Set(3 * 8 + e, -4 * problem.key.Get(e));
    }
    ExpectRight(problem);
  }
}

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

// From a spread-out softmax to one that is a maximum. A row between two near maxima may lie
// anywhere between their values, so only most elements are compared.
TEST_P(ClusteredCpuTest, HugeScoresKeepMostRows) {
  for (const double factor : {30.0, 1e3, 1e12}) {
    OwnedProblem problem(SpecOf(DType::kFloat32, 6, 8, 8, 2, 4), {60}, {1200});
    RandomizeWithMargins(problem, random_, factor, factor);
    Run(problem);
    const std::vector<double> expected = ClusteredReference(problem.spec, problem.view);
    int64_t near = 0;
    for (int64_t i = 0; i < problem.output.size(); ++i) {
      near += std::abs(problem.output.Get(i) - expected[i]) < 0.01;
    }
    EXPECT_GE(2 * near, problem.output.size()) << "factor " << factor;
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

INSTANTIATE_TEST_SUITE_P(Table, ClusteredCpuTest,
                         testing::ValuesIn(CpuRows({KernelName::kClustered,
                                                    KernelName::kImprovedClustered})),
                         NameOfRow);

// The integer stages of clustered attention on the CPU: for the same codes, every instruction set
// must give exactly the twin's labels, centroids and number of updates.

class ClusteredCodesTest : public testing::TestWithParam<const ClusterKernel*>, protected Seeded {
 protected:
  void SetUp() override {
    if (!kernel().runs_here()) GTEST_SKIP() << "this processor cannot run " << kernel().backend;
  }

  static const ClusterKernel& kernel() { return *GetParam(); }

  uint64_t RandomCode(int bits) { return ((uint64_t{random_()} << 32) | random_()) >> (64 - bits); }

  std::vector<uint64_t> RandomCodes(int64_t count, int bits) {
    std::vector<uint64_t> codes;
    for (int64_t i = 0; i < count; ++i) codes.push_back(RandomCode(bits));
    return codes;
  }

  static void Run(CodeClusterer& clusterer, const std::vector<uint64_t>& codes, bool threads) {
    std::vector<int32_t> order(codes.size()), begin(codes.size() + 1);
    clusterer.Start(codes, order.data(), begin.data());
    if (threads) {
      ASSERT_TRUE(RunPasses(clusterer, RunToEnd()).ok());
      return;
    }
    for (int64_t at = 0; StepThrough(clusterer, &at);) {
    }
  }

  void ExpectTwins(const std::vector<uint64_t>& codes, const Clustered& parameters) {
    const CodeClusters expected = ClusterCodes(codes, parameters);
    CodeClusterer clusterer(kernel(), parameters, static_cast<int64_t>(codes.size()));
    for (const bool threads : {false, true}) {
      Run(clusterer, codes, threads);
      ASSERT_EQ(clusterer.updates(), expected.updates);
      ASSERT_TRUE(std::ranges::equal(clusterer.labels(), expected.labels))
          << codes.size() << " codes of " << parameters.bits << " bits in " << parameters.clusters
          << " clusters";
      ASSERT_TRUE(std::ranges::equal(clusterer.centroids(), expected.centroids));
    }
  }
};

TEST_P(ClusteredCodesTest, RandomCodesGetTheTwinsLabels) {
  for (int round = 0; round < Scaled(200); ++round) {
    Clustered parameters = PlainClusters(UpTo(round % 8 == 0 ? 700 : 60), random_());
    parameters.bits = UpTo(64);
    parameters.iterations = UpTo(15);
    ExpectTwins(RandomCodes(UpTo(round % 10 == 0 ? 3000 : 300), parameters.bits), parameters);
  }
}

// Codes around centres, as from structured queries, with few distinct values: many ties.
TEST_P(ClusteredCodesTest, CodesAroundCentresGetTheTwinsLabels) {
  for (int round = 0; round < Scaled(100); ++round) {
    Clustered parameters = PlainClusters(UpTo(40), random_());
    parameters.bits = UpTo(64);
    const std::vector<uint64_t> centres = RandomCodes(UpTo(30), parameters.bits);
    std::vector<uint64_t> codes;
    for (int count = UpTo(1500); count > 0; --count) {
      uint64_t code = centres[random_() % centres.size()];
      for (int flips = UpTo(4) - 1; flips > 0; --flips) {
        code ^= uint64_t{1} << (random_() % parameters.bits);
      }
      codes.push_back(code);
    }
    ExpectTwins(codes, parameters);
  }
}

TEST_P(ClusteredCodesTest, AdversarialCodesGetTheTwinsLabels) {
  for (const int bits : {1, 2, 3, 15, 16, 39, 40, 63, 64}) {
    const uint64_t all = ~uint64_t{0} >> (64 - bits);
    for (const int clusters : {1, 2, 3, 65, 128, 129, 256, 1000}) {
      for (const int count : {1, 2, 65, 257, 511, 513}) {
        if (kSanitized && clusters > 129 && count > 257) continue;
        Clustered parameters = PlainClusters(clusters, random_());
        parameters.bits = bits;
        ExpectTwins(std::vector<uint64_t>(count, all), parameters);
        ExpectTwins(std::vector<uint64_t>(count, 0), parameters);
        std::vector<uint64_t> two;  // values that differ everywhere
        for (int i = 0; i < count; ++i) two.push_back(i % 3 == 0 ? all : 0);
        ExpectTwins(two, parameters);
        std::vector<uint64_t> one_bit;
        for (int i = 0; i < count; ++i) one_bit.push_back(uint64_t{1} << (i % bits));
        ExpectTwins(one_bit, parameters);
      }
    }
  }
}

TEST_P(ClusteredCodesTest, TheMostClustersGetTheTwinsLabels) {
  if (kSanitized) GTEST_SKIP() << "a lot of work for the twin";
  Clustered parameters = PlainClusters(65536, random_());
  parameters.iterations = 1;
  ExpectTwins(RandomCodes(5000, 63), parameters);
}

TEST_P(ClusteredCodesTest, HashCodesAreTheTwins) {
  for (int round = 0; round < Scaled(90); ++round) {
    const DType dtype = kFloatTypes[round % 3];
    Clustered parameters = PlainClusters(1, random_());
    parameters.bits = round % 4 == 0 ? 63 : UpTo(64);
    parameters.hash_bias = round % 2 == 0;
    OwnedProblem problem(MakeSpec(dtype, parameters, UpTo(3), UpTo(140), 1), {UpTo(150)}, {1},
                         {.query = UpTo(5)});
    problem.Randomize(random_);
    MakeHashMargins(problem, random_);
    const Spec& spec = problem.spec;
    const HashPlanes twin = MakeHashPlanes(parameters, spec.head_dim);
    const HashPlaneSet planes(kernel(), parameters, spec.head_dim);
    std::vector<float> scratch(kernel().hash_scratch_floats(spec.head_dim));
    const int64_t count = problem.view.query_tokens();
    std::vector<uint64_t> codes(count);
    const ReferenceTensors in(spec, problem.view);
    for (int64_t head = 0; head < spec.heads; ++head) {
      kernel().hash(planes.planes(),
                    std::array{kernels::Element::kFloat32, kernels::Element::kFloat16,
                               kernels::Element::kBFloat16}[round % 3],
                    problem.query.data() + head * spec.head_dim * SizeOf(dtype),
                    problem.view.query_stride, count, codes.data(), scratch.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(codes[i], HashCode(twin, in.query(i, head)))
            << NameOf(dtype) << " dim " << spec.head_dim << " bits " << parameters.bits;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ClusteredCodesTest, testing::ValuesIn(kernels::kClusterKernels),
                         [](const auto& info) {
                           std::string name(info.param->backend);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace castor::attention

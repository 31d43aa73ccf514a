// Every row of the CPU's variant table that computes clustered or improved clustered attention,
// with every option, against the plain double-precision twin over the supported shapes and
// parameters.

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/support/sanitizer.h"
#include "tests/unit/attention/clustered/clustered_cpu_fixture.h"

namespace castor::attention {
namespace {

TEST_P(ClusteredCpuTest, MatchesTheReferenceOnRandomShapes) {
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
      RandomizeWithMargins(problem, random_);
      ExpectRight(problem);
    });
  }
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

INSTANTIATE_TEST_SUITE_P(Table, ClusteredCpuTest,
                         testing::ValuesIn(CpuRows({KernelName::kClustered,
                                                    KernelName::kImprovedClustered})),
                         NameOfRow);

}  // namespace
}  // namespace castor::attention

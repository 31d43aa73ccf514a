// The invariants of clustered and improved clustered attention, on the twins.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "tests/support/attention/clustered_problem.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/clustered.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {
namespace {

class ClusteredReferenceTest : public testing::Test, protected Seeded {
 protected:
  std::vector<uint64_t> RandomCodes(int64_t count) {
    std::vector<uint64_t> codes;
    for (int64_t i = 0; i < count; ++i) codes.push_back((uint64_t{random_()} << 32) | random_());
    return codes;
  }
};

TEST_F(ClusteredReferenceTest, LabelsAreNearestAndTiesGoLow) {
  const std::vector<uint64_t> codes = RandomCodes(300);
  const CodeClusters clusters = ClusterCodes(codes, PlainClusters(17, seed_));
  ASSERT_EQ(clusters.centroids.size(), 17u);
  for (size_t i = 0; i < codes.size(); ++i) {
    const int32_t label = clusters.labels[i];
    const int mine = std::popcount(codes[i] ^ clusters.centroids[label]);
    for (int32_t c = 0; c < 17; ++c) {
      const int other = std::popcount(codes[i] ^ clusters.centroids[c]);
      EXPECT_TRUE(c < label ? other > mine : other >= mine);
    }
  }
}

TEST_F(ClusteredReferenceTest, EqualCodesShareTheFirstCluster) {
  const std::vector<uint64_t> codes(50, 0x123456789abcdef0);
  const CodeClusters clusters = ClusterCodes(codes, PlainClusters(8, seed_));
  EXPECT_EQ(clusters.labels, std::vector<int32_t>(50, 0));
  EXPECT_EQ(clusters.updates, 1) << "nothing changed, so Lloyd stops";
}

TEST_F(ClusteredReferenceTest, AsManyClustersAsQueriesAtMost) {
  const CodeClusters clusters = ClusterCodes(RandomCodes(5), PlainClusters(100, seed_));
  EXPECT_EQ(clusters.centroids.size(), 5u);
  EXPECT_EQ(std::set<int32_t>(clusters.labels.begin(), clusters.labels.end()).size(), 5u);
}

TEST_F(ClusteredReferenceTest, IterationsBoundTheUpdates) {
  Clustered kernel = PlainClusters(20, seed_);
  kernel.iterations = 2;
  EXPECT_LE(ClusterCodes(RandomCodes(2000), kernel).updates, 2);
}

TEST_F(ClusteredReferenceTest, BitsBoundTheCode) {
  for (const int bits : {1, 5, 63, 64}) {
    Clustered kernel = PlainClusters(4, seed_);
    kernel.bits = bits;
    const HashPlanes planes = MakeHashPlanes(kernel, 8);
    uint64_t seen = 0;
    for (int i = 0; i < 200; ++i) {
      std::normal_distribution<double> normal;
      std::vector<double> query(8);
      for (double& x : query) x = normal(random_);
      seen |= HashCode(planes, query.data());
    }
    EXPECT_EQ(std::bit_width(seen), bits);
  }
}

TEST_F(ClusteredReferenceTest, WithoutBiasTheZeroQueryHasNoBits) {
  Clustered kernel = PlainClusters(4, seed_);
  const std::vector<double> zero(16);
  EXPECT_NE(HashCode(MakeHashPlanes(kernel, 16), zero.data()), 0u);
  kernel.hash_bias = false;
  EXPECT_EQ(HashCode(MakeHashPlanes(kernel, 16), zero.data()), 0u);
}

TEST_F(ClusteredReferenceTest, AClusterPerQueryIsVanilla) {
  for (const Kernel& kernel :
       {Kernel(PlainClusters(1000, seed_)), Kernel(ImprovedClusters(1000, 4, seed_))}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, kernel, 2, 16, 8), {40, 1, 9}, {30, 3, 9});
    problem.Randomize(random_);
    EXPECT_LE(Distance(ClusteredReference(problem.spec, problem.view), VanillaOfTheSame(problem)),
              1e-12);
  }
}

TEST_F(ClusteredReferenceTest, TopKeysBeyondAllKeysIsVanilla) {
  OwnedProblem problem(MakeSpec(DType::kFloat32, ImprovedClusters(3, 30, seed_), 2, 16, 8), {40, 5},
                       {30, 2});
  problem.Randomize(random_);
  EXPECT_LE(Distance(ClusteredReference(problem.spec, problem.view), VanillaOfTheSame(problem)),
            1e-12);
}

TEST_F(ClusteredReferenceTest, OneQueryAndOneKey) {
  for (const Kernel& kernel :
       {Kernel(PlainClusters(100, seed_)), Kernel(ImprovedClusters(100, 32, seed_))}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, kernel, 1, 4, 4), {1}, {1});
    problem.Randomize(random_);
    EXPECT_LE(Distance(ClusteredReference(problem.spec, problem.view), VanillaOfTheSame(problem)),
              1e-12);
  }
}

TEST_F(ClusteredReferenceTest, WeightsOfEveryRowSumToOne) {
  for (const Kernel& kernel :
       {Kernel(PlainClusters(7, seed_)), Kernel(ImprovedClusters(7, 5, seed_))}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, kernel, 2, 8, 1), {60}, {50});
    problem.Randomize(random_);
    for (int64_t i = 0; i < problem.value.size(); ++i) problem.value.Set(i, 1);
    for (double sum : ClusteredReference(problem.spec, problem.view)) EXPECT_NEAR(sum, 1, 1e-12);
  }
}

// Theorem of section 3.3: no row gets further from the exact weights in L1 distance.
TEST_F(ClusteredReferenceTest, RefiningNeverHurtsARow) {
  constexpr int32_t kKeys = 40;
  for (const int32_t topk : {2, 4, 16}) {
    OwnedProblem problem(MakeSpec(DType::kFloat32, PlainClusters(5, seed_), 2, 8, kKeys), {60},
                         {kKeys});
    problem.Randomize(random_, 2, 1);
    MakeValuesIdentity(problem);
    const std::vector<double> exact = VanillaOfTheSame(problem);
    const std::vector<double> plain = ClusteredReference(problem.spec, problem.view);
    problem.spec.kernel = ImprovedClusters(5, topk, seed_);
    const std::vector<double> improved = ClusteredReference(problem.spec, problem.view);
    double gained = 0;
    for (size_t row = 0; row < exact.size() / kKeys; ++row) {
      double before = 0;
      double after = 0;
      for (size_t j = row * kKeys; j < (row + 1) * kKeys; ++j) {
        before += std::abs(plain[j] - exact[j]);
        after += std::abs(improved[j] - exact[j]);
      }
      EXPECT_LE(after, before + 1e-12);
      gained += before - after;
    }
    EXPECT_GT(gained, 0);
  }
}

TEST_F(ClusteredReferenceTest, EqualQueriesGetEqualRows) {
  OwnedProblem problem(MakeSpec(DType::kFloat32, ImprovedClusters(4, 3, seed_), 1, 8, 8), {30},
                       {30});
  problem.Randomize(random_);
  for (int64_t e = 0; e < 8; ++e) problem.query.Set(20 * 8 + e, problem.query.Get(3 * 8 + e));
  const std::vector<int32_t> labels = ClusterLabels(problem.spec, problem.view);
  EXPECT_EQ(labels[3], labels[20]);
  const std::vector<double> output = ClusteredReference(problem.spec, problem.view);
  for (int64_t e = 0; e < 8; ++e) EXPECT_EQ(output[3 * 8 + e], output[20 * 8 + e]);
}

TEST_F(ClusteredReferenceTest, MembersShareTheirRowWithoutRefinement) {
  OwnedProblem problem(MakeSpec(DType::kFloat32, PlainClusters(3, seed_), 1, 8, 8), {30}, {20});
  problem.Randomize(random_);
  const std::vector<int32_t> labels = ClusterLabels(problem.spec, problem.view);
  const std::vector<double> output = ClusteredReference(problem.spec, problem.view);
  for (int64_t i = 0; i < 30; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      const bool same = std::equal(&output[i * 8], &output[i * 8] + 8, &output[j * 8]);
      EXPECT_EQ(same, labels[i] == labels[j]);
    }
  }
}

// Proposition 1 of the paper, with scale 1: rows differ by at most their queries' distance times
// |K|.
TEST_F(ClusteredReferenceTest, CloseQueriesHaveCloseRows) {
  constexpr int32_t kKeys = 12;
  OwnedProblem problem(MakeSpec(DType::kFloat32, castor::Vanilla{}, 1, 6, kKeys), {30}, {kKeys});
  problem.spec.softmax_scale = 1;
  problem.Randomize(random_);
  MakeValuesIdentity(problem);
  double key_norm = 0;  // Frobenius norm, a bound on the spectral norm
  for (int64_t i = 0; i < problem.key.size(); ++i) {
    key_norm += problem.key.Get(i) * problem.key.Get(i);
  }
  key_norm = std::sqrt(key_norm);
  const std::vector<double> rows = VanillaReference(problem.spec, problem.view);
  for (int64_t i = 0; i < 30; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      double between_rows = 0;
      double between_queries = 0;
      for (int64_t e = 0; e < kKeys; ++e) {
        between_rows += std::pow(rows[i * kKeys + e] - rows[j * kKeys + e], 2);
      }
      for (int64_t e = 0; e < 6; ++e) {
        between_queries += std::pow(problem.query.Get(i * 6 + e) - problem.query.Get(j * 6 + e), 2);
      }
      EXPECT_LE(std::sqrt(between_rows), std::sqrt(between_queries) * key_norm + 1e-12);
    }
  }
}

TEST_F(ClusteredReferenceTest, ASequenceDoesNotSeeItsBatch) {
  const Spec spec = MakeSpec(DType::kFloat32, ImprovedClusters(5, 3, seed_), 2, 8, 8);
  OwnedProblem alone(spec, {25}, {25});
  alone.Randomize(random_);
  OwnedProblem batch(spec, {10, 25, 40}, {10, 25, 40});
  batch.Randomize(random_);
  CopySequence(alone, 0, batch, 1);
  const std::vector<double> one = ClusteredReference(spec, alone.view);
  const std::vector<double> all = ClusteredReference(spec, batch.view);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + 10 * 16));
}

}  // namespace
}  // namespace castor::attention

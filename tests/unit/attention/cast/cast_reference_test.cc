// The invariants of CAST, on the twin.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/cast.h"

namespace castor::attention {
namespace {

using Clustering = Cast::Clustering;

class CastReferenceTest : public testing::Test, protected Seeded {
 protected:
  std::vector<double> RandomAffinities(int64_t count) {
    std::uniform_real_distribution<double> uniform;
    std::vector<double> affinities(count);
    for (double& affinity : affinities) affinity = uniform(random_);
    return affinities;
  }
};

TEST_F(CastReferenceTest, OneClusterOfAllTokensIsVanilla) {
  for (const Clustering clustering : {Clustering::kTopK, Clustering::kSingleAssignmentTopK}) {
    const CastProblem layer(MakeSpec(DType::kFloat32, CastOf(0, clustering), 2, 8, 6, 1),
                            {20, 1, 7}, random_);
    EXPECT_LE(Distance(layer.Reference(), VanillaOfTheSame(layer.problem)), 1e-12);
  }
}

TEST_F(CastReferenceTest, EveryTokenInEveryClusterIsVanilla) {
  for (const auto temperature : {Cast::GateTemperature::kSoftplus1, Cast::GateTemperature::kNone}) {
    Cast kernel = CastOf(1000);  // clamped to the tokens
    kernel.gate_temperature = temperature;
    const CastProblem layer(MakeSpec(DType::kFloat32, kernel, 2, 8, 6, 5), {20, 1, 7}, random_);
    EXPECT_LE(Distance(layer.Reference(), VanillaOfTheSame(layer.problem)), 1e-12);
  }
}

TEST_F(CastReferenceTest, PermutingTokensPermutesRows) {
  for (const Clustering clustering : {Clustering::kTopK, Clustering::kSingleAssignmentTopK}) {
    for (const auto heads : {Cast::HeadClustering::kShared, Cast::HeadClustering::kPerHead}) {
      Cast kernel = CastOf(0, clustering);
      kernel.head_clustering = heads;
      CastProblem layer(MakeSpec(DType::kFloat32, kernel, 2, 8, 8, 4), {24}, random_);
      const std::vector<double> before = layer.Reference();

      std::vector<int64_t> order(24);  // row `order[i]` moves to i
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random_);
      for (Elements* elements : {&layer.problem.query, &layer.problem.key, &layer.problem.value}) {
        const Elements old = *elements;
        for (int64_t i = 0; i < 24 * 16; ++i) {
          elements->Set(i, old.Get(order[i / 16] * 16 + i % 16));
        }
      }
      const std::vector<float> gate = layer.gate;
      for (int64_t i = 0; i < 24; ++i) layer.gate[i] = gate[order[i]];

      const std::vector<double> after = layer.Reference();
      for (int64_t i = 0; i < 24 * 16; ++i) {
        EXPECT_NEAR(after[i], before[order[i / 16] * 16 + i % 16], 1e-12);
      }
    }
  }
}

TEST_F(CastReferenceTest, SoftmaxRowsOfOnesStayOnes) {
  CastProblem layer(MakeSpec(DType::kFloat32, CastOf(3), 2, 8, 1, 4), {30},
                    random_);  // some tokens in no cluster
  for (int64_t i = 0; i < layer.problem.value.size(); ++i) layer.problem.value.Set(i, 1);
  for (double sum : layer.Reference()) EXPECT_NEAR(sum, 1, 1e-12);
}

TEST_F(CastReferenceTest, LaplaceIsNotNormalised) {
  Cast kernel = CastOf(0);
  kernel.attention_function = Cast::AttentionFunction::kLaplace;
  CastProblem layer(MakeSpec(DType::kFloat32, kernel, 1, 2, 1, 1), {1}, random_);
  for (Elements* elements : {&layer.problem.query, &layer.problem.key, &layer.surrogates}) {
    elements->Set(0, 0);
    elements->Set(1, 0);
  }
  layer.problem.value.Set(0, 1);
  // All scores are 0 and laplace(0) = (1 + erf(-sqrt(pi))) / 2: one factor within the cluster, one
  // for the cluster.
  const double laplace = 0.5 * std::erfc(std::sqrt(3.14159265358979323846));
  EXPECT_NEAR(layer.Reference()[0], laplace * laplace, 1e-15);
}

// Scores of -4 and -3: added to 1, both laplace weights are lost, yet they are not equal.
TEST_F(CastReferenceTest, LaplaceTellsAffinitiesApartDownItsTail) {
  Cast kernel = CastOf(1);
  kernel.attention_function = Cast::AttentionFunction::kLaplace;
  Spec spec = MakeSpec(DType::kFloat32, kernel, 1, 1, 1, 1);
  spec.softmax_scale = 1;
  CastProblem layer(spec, {2}, random_);
  layer.surrogates.Set(0, 1);
  for (Elements* elements : {&layer.problem.query, &layer.problem.key}) {
    elements->Set(0, -4);
    elements->Set(1, -3);
  }
  layer.problem.value.Set(0, 0);
  layer.problem.value.Set(1, 1);
  std::fill(layer.gate.begin(), layer.gate.end(), 0.0f);
  // The second token is the cluster's member and sees its own value. With a tie the first
  // token would be the member.
  EXPECT_GT(layer.Reference()[1], 0);
}

TEST_F(CastReferenceTest, TopKTakesTheBestAndTiesGoLow) {
  std::vector<double> affinities = {1, 5, 3, 5, 5, 2};  // one cluster
  EXPECT_EQ(CastMembers(affinities, 1, 2, Clustering::kTopK)[0], (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(CastMembers(affinities, 1, 4, Clustering::kTopK)[0],
            (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST_F(CastReferenceTest, SingleAssignmentCoversEveryTokenOnce) {
  for (int round = 0; round < 200; ++round) {
    const int64_t clusters = 1 + random_() % 8;
    const int64_t tokens = 1 + random_() % 60;
    const int64_t size = (tokens + clusters - 1) / clusters + random_() % 3;
    std::vector<double> affinities = RandomAffinities(tokens * clusters);
    if (round % 3 == 0) std::fill(affinities.begin(), affinities.end(), 0.5);  // all tied
    if (round % 3 == 1) {
      for (int64_t i = 0; i < tokens; ++i) affinities[i * clusters] += 2;  // all prefer one
    }
    const auto members = CastMembers(affinities, clusters, size, Clustering::kSingleAssignmentTopK);
    std::vector<int> times(tokens);
    for (const std::vector<int64_t>& cluster : members) {
      EXPECT_LE(static_cast<int64_t>(cluster.size()), size);
      EXPECT_TRUE(std::is_sorted(cluster.begin(), cluster.end()));
      for (int64_t token : cluster) ++times[token];
    }
    EXPECT_EQ(times, std::vector<int>(tokens, 1));
  }
}

// Stable: no token and cluster both prefer each other to what they have.
TEST_F(CastReferenceTest, SingleAssignmentIsStable) {
  for (int round = 0; round < 50; ++round) {
    const int64_t clusters = 5;
    const int64_t tokens = 40;
    const int64_t size = 8;
    const std::vector<double> affinities = RandomAffinities(tokens * clusters);
    const auto members = CastMembers(affinities, clusters, size, Clustering::kSingleAssignmentTopK);
    std::vector<double> has(tokens);
    for (int64_t c = 0; c < clusters; ++c) {
      for (int64_t token : members[c]) has[token] = affinities[token * clusters + c];
    }
    for (int64_t c = 0; c < clusters; ++c) {
      double worst = static_cast<int64_t>(members[c].size()) < size ? -1 : 2;
      for (int64_t token : members[c]) {
        worst = std::min(worst, affinities[token * clusters + c]);
      }
      for (int64_t token = 0; token < tokens; ++token) {
        const double would = affinities[token * clusters + c];
        EXPECT_FALSE(would > has[token] && would > worst) << token << " and " << c;
      }
    }
  }
}

TEST_F(CastReferenceTest, TiedAffinitiesFillClustersInOrder) {
  const auto members =
      CastMembers(std::vector<double>(12, 1), 3, 2, Clustering::kSingleAssignmentTopK);
  // Four tokens, three clusters of two places: the lower token first, then the lower cluster.
  EXPECT_EQ(members, (std::vector<std::vector<int64_t>>{{0, 1}, {2, 3}, {}}));
}

TEST_F(CastReferenceTest, FewerTokensThanClusters) {
  for (const Clustering clustering : {Clustering::kTopK, Clustering::kSingleAssignmentTopK}) {
    CastProblem layer(MakeSpec(DType::kFloat32, CastOf(0, clustering), 2, 8, 1, 10), {3}, random_);
    for (double x : layer.Reference()) EXPECT_TRUE(std::isfinite(x));
  }
}

}  // namespace
}  // namespace castor::attention

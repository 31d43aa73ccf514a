// CAST's clusters on the emulator must match the serial loops bit for bit, for any affinities.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/cast.h"
#include "tests/unit/kernels_cuda/cast_kernels.h"

namespace castor::kernels::cuda {
namespace {

using attention::CastMembers;
using attention::CastOf;
using attention::CastProblem;
using attention::MakeSpec;
using attention::Spec;
using Clustering = Cast::Clustering;
using Members = std::vector<std::vector<int64_t>>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class CudaCastClustersTest : public testing::Test, protected Seeded {
 protected:
  CudaCastClustersTest() { cuda_emulator::SetSchedule(seed_); }

  float Random01() { return std::uniform_real_distribution<float>()(random_); }

  // Compares the clusters of one sequence, from affinities [tokens, clusters], between the kernels
  // and the loops.
  void Check(const std::vector<float>& affinities, int64_t clusters, int64_t size,
             Clustering clustering, const std::string& what) {
    SCOPED_TRACE(what + ": " + std::to_string(affinities.size() / clusters) + " tokens, " +
                 std::to_string(clusters) + " clusters of " + std::to_string(size));
    const auto tokens = static_cast<int32_t>(affinities.size() / clusters);
    const Spec spec = MakeSpec(DType::kFloat32, CastOf(static_cast<int32_t>(size), clustering), 1,
                               1, 1, clusters);
    const CastProblem layer(spec, {tokens}, random_);
    PreparedCast run(spec, layer.problem.view);
    run.stages().SetAffinities(0, 0, affinities);
    ASSERT_EQ(RunCastClusters(run.args(), (tokens + 127) / 128, nullptr), cudaSuccess);
    std::vector<double> ordered(affinities.begin(), affinities.end());
    for (double& x : ordered) {
      if (std::isnan(x)) x = -std::numeric_limits<double>::infinity();  // the least
    }
    EXPECT_TRUE(run.stages().WordsAgree(0, 0));
    EXPECT_EQ(run.stages().Members(0, 0),
              CastMembers(ordered, clusters, std::min<int64_t>(size, tokens), clustering));
  }

  // Affinities of the given pattern.
  std::vector<float> Pattern(int pattern, int64_t tokens, int64_t clusters) {
    std::vector<float> affinities(tokens * clusters);
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t c = 0; c < clusters; ++c) {
        float& x = affinities[i * clusters + c];
        switch (pattern) {
          case 0:  // all different
            x = Random01();
            break;
          case 1:  // all tied
            x = 0.5f;
            break;
          case 2:  // all tokens prefer one cluster
            x = Random01() + (c == 1 % clusters ? 2.0f : 0.0f);
            break;
          case 3:  // all rank the clusters alike, and the clusters rank the tokens alike
            x = static_cast<float>((tokens - i) * clusters + (clusters - c));
            break;
          case 4:  // few values, many ties
            x = static_cast<float>(random_() % 3);
            break;
          case 5:  // shared leading bits
            x = std::nextafter(1.0f, 2.0f) + static_cast<float>(random_() % 64) * 0x1p-23f;
            break;
          case 6:  // both signs, both zeros, infinities, subnormals
            x = std::vector<float>{
                -1, -0.0f, 0.0f, 1, INFINITY, -INFINITY, 1e-40f, Random01()}[random_() % 8];
            break;
          case 7:  // some tokens are NaN
            x = i % 3 == 0 ? kNaN : Random01();
            break;
          default:  // only NaN
            x = kNaN;
            break;
        }
      }
    }
    return affinities;
  }
  static constexpr int kPatterns = 9;
};

TEST_F(CudaCastClustersTest, TopKIsTheSerialLoops) {
  for (int round = 0; round < Scaled(63); ++round) {
    const int64_t tokens = round % 4 == 0 ? Uniform(500, 1400) : Uniform(1, 100);
    const int64_t clusters = Uniform(1, 4);
    const int pattern = round % kPatterns;
    Check(Pattern(pattern, tokens, clusters), clusters, Uniform(1, tokens), Clustering::kTopK,
          "pattern " + std::to_string(pattern));
  }
}

TEST_F(CudaCastClustersTest, SingleAssignmentIsTheSerialLoops) {
  for (int round = 0; round < Scaled(63); ++round) {
    const int64_t tokens = Uniform(1, round % 5 == 0 ? 300 : 60);
    const int64_t clusters = Uniform(1, 12);
    const int64_t exact = (tokens + clusters - 1) / clusters;
    const int pattern = round % kPatterns;
    Check(Pattern(pattern, tokens, clusters), clusters, exact + (round % 2) * Uniform(0, 5),
          Clustering::kSingleAssignmentTopK, "pattern " + std::to_string(pattern));
  }
}

// More tokens choose one cluster than shared memory holds.
TEST_F(CudaCastClustersTest, ARushOnOneClusterIsTheSerialLoops) {
  const int64_t tokens = Uniform(4200, 4700);
  for (const int pattern : {1, 2}) {
    if (kSanitized && pattern == 1) continue;
    Check(Pattern(pattern, tokens, 3), 3, tokens / 3 + 1, Clustering::kSingleAssignmentTopK,
          "a rush, pattern " + std::to_string(pattern));
  }
}

// Too few places are refused before the kernels run. If they ever were not, the kernels must still
// end.
TEST_F(CudaCastClustersTest, TooFewPlacesLeaveTokensOut) {
  Check(Pattern(0, 30, 3), 3, 5, Clustering::kSingleAssignmentTopK, "too few places");
  Check(Pattern(1, 30, 3), 3, 5, Clustering::kSingleAssignmentTopK, "too few places, tied");
}

}  // namespace
}  // namespace castor::kernels::cuda

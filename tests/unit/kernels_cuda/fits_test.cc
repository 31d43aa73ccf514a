// The problems that the GPU's kernels for clustered attention and CAST support. No numbers make
// their memory sizes wrap.

#include "engine/attention/cuda/fits.h"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>
#include <vector>

#include "engine/attention/cuda/choice.h"
#include "engine/kernels/count.h"
#include "tests/support/attention/spec.h"

namespace castor::attention::cuda {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostDims = 1 << 20;
constexpr int32_t kMostTokens = std::numeric_limits<int32_t>::max();

TEST(ClusteredFitsTest, TakesWhatGridsHold) {
  const ImprovedClustered kernel = ImprovedClusters(65536, 1024);
  for (const auto& [heads, dim, fits] :
       {std::tuple(int64_t{65535}, kMostDims, true), std::tuple(int64_t{65536}, int64_t{1}, false),
        std::tuple(int64_t{1}, kMostDims + 1, false), std::tuple(kMax, int64_t{1}, false),
        std::tuple(int64_t{1}, kMax, false)}) {
    EXPECT_EQ(ClusteredFits(MakeSpec(DType::kFloat32, kernel, heads, dim, 1)), fits);
    EXPECT_EQ(ClusteredFits(MakeSpec(DType::kFloat32, kernel, heads, 1, dim)), fits);
  }
}

TEST(ClusteredFitsTest, TakesNoOptionBeyondThePaper) {
  const auto fits = [](const Kernel& kernel) {
    const Spec spec = MakeSpec(DType::kFloat16, kernel, 2, 64, 64);
    return ClusteredFits(spec);
  };
  ImprovedClustered kernel = ImprovedClusters(8, 8);
  EXPECT_TRUE(fits(kernel));
  kernel.rest_mass = ImprovedClustered::RestMass::kQuery;
  EXPECT_FALSE(fits(kernel));
  Clustered clusters = PlainClusters(8);
  EXPECT_TRUE(fits(clusters));
  clusters.clustering = Clustered::Clustering::kQuerySpace;
  EXPECT_FALSE(fits(clusters));
}

TEST(ClusteredFitsTest, MemoryThatCannotBeCountedIsSaidToBe) {
  std::vector<int32_t> offsets;
  for (int32_t s = 0; s < 1 << 14; ++s) offsets.push_back(s << 17);
  const Spec most =
      MakeSpec(DType::kFloat32, ImprovedClusters(65536, 1024), kMaxGridHeads, kMostDims, kMostDims);
  EXPECT_EQ(ClusteredWorkspaceBytes(most, offsets, offsets), Count::kMost);
  const Spec small = MakeSpec(DType::kFloat32, ImprovedClusters(100, 32), 8, 64, 64);
  EXPECT_LT(ClusteredWorkspaceBytes(small, std::vector{0, 1000}, std::vector{0, 1000}), 64 << 20);
}

TEST(CastFitsTest, TakesWhatGridsAndInt32Hold) {
  const auto fits = [](int64_t heads, int64_t dim, int64_t surrogates) {
    return CastFits(MakeSpec(DType::kFloat16, CastOf(0), heads, dim, dim, surrogates));
  };
  EXPECT_TRUE(fits(65535, kMostDims, 32768));
  EXPECT_FALSE(fits(65536, 1, 1));
  EXPECT_FALSE(fits(1, kMostDims + 1, 1));
  EXPECT_FALSE(fits(1, std::numeric_limits<int32_t>::max(), 1)) << "its rows' pitch leaves int32";
  EXPECT_FALSE(fits(2, 1, int64_t{1} << 30));
}

TEST(CastFitsTest, ThereIsNoLogSumExp) {
  Spec spec = MakeSpec(DType::kFloat16, CastOf(0), 2, 64, 64, 8);
  EXPECT_TRUE(CastFits(spec));
  spec.log_sum_exp = true;
  EXPECT_FALSE(CastFits(spec));
  spec.kernel = PlainClusters(8);
  EXPECT_TRUE(ClusteredFits(spec));
  const std::vector<int32_t> offsets = {0, 100};
  Spec without = spec;
  without.log_sum_exp = false;
  EXPECT_GT(ClusteredWorkspaceBytes(spec, offsets, offsets),
            ClusteredWorkspaceBytes(without, offsets, offsets));
}

TEST(CastFitsTest, MemoryThatCannotBeCountedIsSaidToBe) {
  const std::vector<int32_t> offsets = {0, kMostTokens};
  for (int reading = 0; reading < kCastReadings; ++reading) {
    const Spec most = MakeSpec(DType::kFloat32, CastReading(reading, kMostTokens), 65535, kMostDims,
                               kMostDims, 32768);
    EXPECT_EQ(CastWorkspaceBytes(most, offsets, offsets), Count::kMost);
  }
}

// A launch that the driver would refuse counts as needing more memory than there is.
TEST(CastFitsTest, MoreClustersThanAGridHoldsAreTooMany) {
  const std::vector<int32_t> offsets = {0, 1};
  const auto bytes = [&](int64_t surrogates) {
    return CastWorkspaceBytes(MakeSpec(DType::kFloat32, CastOf(0), 1, 1, 1, surrogates), offsets,
                              offsets);
  };
  EXPECT_LT(bytes(65535 * 128), Count::kMost);
  EXPECT_EQ(bytes(65535 * 128 + 1), Count::kMost);
  EXPECT_EQ(bytes(0), 0) << "not yet known";
}

TEST(PlacesFitTest, NeitherClustersNorCastTakeWindowsOrBiases) {
  for (const Kernel& kernel :
       {Kernel(PlainClusters(8)), Kernel(ImprovedClusters(8, 8)), Kernel(CastOf(0))}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      const Spec plain = MakeSpec(dtype, kernel, 2, 64, 64, 8);
      const auto fits = [](const Spec& spec) { return ClusteredFits(spec) || CastFits(spec); };
      EXPECT_TRUE(fits(plain));
      Spec windowed = plain;
      windowed.window = SymmetricWindow(4);
      EXPECT_FALSE(fits(windowed));
      Spec biased = plain;
      const std::vector<float> slopes(2, 0.5f);
      biased.bias.slopes = slopes.data();
      EXPECT_FALSE(fits(biased));
    }
  }
}

}  // namespace
}  // namespace castor::attention::cuda

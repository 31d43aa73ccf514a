// The workspace that the CPU's rows report, in arithmetic that cannot wrap.

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "engine/attention/variants.h"
#include "engine/kernels/count.h"
#include "tests/support/attention/spec.h"

namespace castor::attention {
namespace {

constexpr int64_t kMost = Count::kMost;
constexpr int32_t kMostTokens = std::numeric_limits<int32_t>::max();

TEST(CountTest, StaysAtTheMost) {
  EXPECT_EQ(Count(3) * 5 + 1, Count(16));
  EXPECT_EQ((Count(kMost) + 1).value(), kMost);
  EXPECT_EQ((Count(int64_t{1} << 32) * (int64_t{1} << 31)).value(), kMost);
  EXPECT_EQ((Count(kMost) * 1).value(), kMost);
  EXPECT_EQ((Count(kMost) * 0).value(), 0);
  EXPECT_EQ(Count(-1).value(), kMost) << "it must have wrapped before";
  EXPECT_EQ(Count(kMost).Units(64).value(), kMost);
  EXPECT_EQ(Count(kMost - 1).RoundedUp(64).value(), kMost);
  EXPECT_EQ(Count(65).RoundedUp(64).value(), 128);
  EXPECT_EQ(Count(0).Units(7).value(), 0);
}

int64_t WorkspaceBytes(const Spec& spec, const std::vector<int32_t>& offsets) {
  const Variant* const row = FindVariant(CpuVariants(), spec);
  return row->workspace_bytes(spec, offsets, offsets);
}

TEST(WorkspaceTest, WhatCannotBeCountedIsSaidToBe) {
  constexpr int64_t kHuge = int64_t{1} << 58;
  const std::vector<int32_t> offsets = {0, kMostTokens};
  ImprovedClustered options = ImprovedClusters(65536, 1024);
  options.clustering = Clustered::Clustering::kQuerySpace;
  options.rest_mass = ImprovedClustered::RestMass::kQuery;
  options.rest_groups = 64;
  for (const Kernel& kernel :
       {Kernel(Vanilla{}), Kernel(PlainClusters(65536)), Kernel(ImprovedClusters(65536, 1024)),
        Kernel(options), Kernel(CastOf(0))}) {
    SCOPED_TRACE(NameOf(NameOf(kernel)));
    EXPECT_EQ(WorkspaceBytes(MakeSpec(DType::kFloat32, kernel, 1, kHuge, 1, 1), offsets), kMost);
    EXPECT_EQ(WorkspaceBytes(MakeSpec(DType::kFloat32, kernel, 1, 1, kHuge, 1), offsets), kMost);
    if (ClusteringOf(kernel) == nullptr) continue;  // others need memory for a few at a time
    EXPECT_EQ(WorkspaceBytes(MakeSpec(DType::kFloat32, kernel, kHuge, 1, 1, 1), offsets), kMost);
  }
}

TEST(WorkspaceTest, CastWhoseHeadsWrapIsTooLarge) {
  constexpr int64_t kMillion = int64_t{1} << 20;
  const Spec spec =
      MakeSpec(DType::kFloat32, CastOf(kMillion - 1), 1, 1, int64_t{1} << 22, kMillion);
  EXPECT_EQ(WorkspaceBytes(spec, {0, kMillion}), kMost);
}

// Lists of members use 32-bit indices.
TEST(WorkspaceTest, CastWithMoreMembersThanListsHoldIsTooLarge) {
  const auto bytes = [](int64_t surrogates) {
    return WorkspaceBytes(MakeSpec(DType::kFloat32, CastOf(1 << 16), 1, 1, 1, surrogates),
                          {0, 1 << 16});
  };
  EXPECT_LT(bytes((1 << 15) - 1), kMost);
  EXPECT_EQ(bytes(1 << 15), kMost);
}

// Each head costs more than its codes; most of all, a task list entry that names it.
TEST(WorkspaceTest, ManyHeadsOfOneTokenAreCounted) {
  constexpr int64_t kHeads = int64_t{1} << 24;
  const Spec spec = MakeSpec(DType::kFloat16, PlainClusters(1), kHeads, 1, 1);
  EXPECT_GE(WorkspaceBytes(spec, {0, 1}), kHeads * (12 + 8 + 8 + 32));
}

}  // namespace
}  // namespace castor::attention

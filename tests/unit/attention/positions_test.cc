// Windows and biases by distance: every row of the CPU's variant table that computes vanilla
// attention against the plain double-precision twin, and every other row refuses them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {
namespace {

// A bias that owns its memory.
class OwnedBias {
 public:
  // A reach below 0: no table.
  OwnedBias(std::mt19937& random, int64_t heads, int64_t reach, bool slopes) : reach_(reach) {
    std::normal_distribution<float> normal;
    if (reach >= 0) table_.resize(heads * (2 * reach + 1));
    for (float& bias : table_) bias = 2 * normal(random);
    if (slopes) slopes_.resize(heads);
    for (float& slope : slopes_) slope = std::abs(normal(random)) / 4;
  }

  PositionBias view() const {
    return {.table = table_.empty() ? nullptr : table_.data(),
            .reach = std::max<int64_t>(0, reach_),
            .slopes = slopes_.empty() ? nullptr : slopes_.data()};
  }

 private:
  int64_t reach_;
  std::vector<float> table_;
  std::vector<float> slopes_;
};

class PositionsTest : public VariantTest {
 protected:
  void ExpectRight(const Spec& spec, const std::vector<int32_t>& lengths, const Gaps& gaps = {}) {
    OwnedProblem problem(spec, lengths, lengths, gaps);
    problem.Randomize(random_);
    Run(problem);
    EXPECT_LE(RelativeError(problem, VanillaReference(spec, problem.view)), Tolerance(spec.dtype))
        << Describe(spec) << ", " << lengths.size() << " sequences, the first of " << lengths[0];
  }
};

TEST_P(PositionsTest, WindowsMatchTheReferenceAtEveryEdge) {
  for (const int64_t window : {0, 1, 5, 16, 63, 64, 130}) {
    Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 1, 8, 5);
    spec.window = window;
    const auto w = static_cast<int32_t>(window);
    for (const int32_t length : {1, w, w + 1, w + 2, 2 * w + 1, 127, 128, 129, 193, 400, 700}) {
      if (length > 0) ExpectRight(spec, {length});
    }
  }
}

TEST_P(PositionsTest, TablesMatchTheReferenceAtEveryEdge) {
  for (const int64_t reach : {0, 1, 7, 128}) {
    const OwnedBias bias(random_, 2, reach, false);
    Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 2, 8, 5);
    spec.bias = bias.view();
    for (const int32_t length : {1, 2, 7, 8, 9, 48, 49, 129, 300}) ExpectRight(spec, {length});
  }
}

TEST_P(PositionsTest, MatchesTheReferenceOnRandomShapes) {
  for (int round = 0; round < Scaled(60); ++round) {
    const int64_t heads = UpTo(4);
    Spec spec = WithSharedHeads(MakeSpec(kFloatTypes[round % 3], Vanilla{.causal = round % 5 == 4},
                                         heads, UpTo(100), UpTo(100)));
    const int kind = round % 4;  // a window, a table, slopes, all of them
    const OwnedBias bias(random_, heads, kind == 1 || kind == 3 ? UpTo(150) - 1 : -1, kind >= 2);
    if (kind == 0 || kind == 3) spec.window = UpTo(200) - 1;
    spec.bias = bias.view();
    std::vector<int32_t> lengths;
    for (int sequences = UpTo(4); sequences > 0; --sequences) {
      lengths.push_back(UpTo(sequences == 1 ? 600 : 60));
    }
    ExpectRight(spec, lengths, {UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1});
  }
}

TEST_P(PositionsTest, BiasesAreAddedToScoresOfAnyScale) {
  const OwnedBias bias(random_, 2, 20, true);
  for (const double scale : {1.0, -1.0, 1e-6, 3.0, -0.25}) {
    Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 2, 16, 16);
    spec.softmax_scale = scale;
    spec.bias = bias.view();
    ExpectRight(spec, {70});
  }
  Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 2, 16, 16);
  spec.softmax_scale = 1e-30;  // a bias in its units may be infinite
  spec.bias = bias.view();
  EXPECT_FALSE(GetParam().supports(spec));
}

// As the table's definition says, whichever way a mistake would turn it.
TEST_P(PositionsTest, ATableIsReadByTheKeysPlaceLessTheQuerys) {
  constexpr float kFarBelow = -1e6f;
  const std::vector<float> next_key_only = {kFarBelow, kFarBelow, 0};  // of -1, 0 and 1
  Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 1, 4, 1);
  spec.bias = {.table = next_key_only.data(), .reach = 1, .slopes = nullptr};
  spec.window = 1;
  OwnedProblem problem(spec, {100}, {100});
  problem.Randomize(random_);
  Run(problem);
  for (int64_t i = 0; i + 1 < 100; ++i) {
    EXPECT_EQ(problem.Output(i, 0, 0), problem.value.Get(i + 1)) << i;
  }
}

TEST_P(PositionsTest, AWindowThatCoversAllChangesNoByte) {
  Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 2, 24, 24);
  OwnedProblem whole(spec, {300, 1, 129}, {300, 1, 129});
  whole.Randomize(random_);
  Run(whole);
  const std::vector<std::byte> expected = whole.output.bytes();
  whole.spec.window = 299;
  whole.output.Clear();
  Run(whole);
  EXPECT_EQ(whole.output.bytes(), expected);
}

TEST_P(PositionsTest, KeysOutsideOfTheWindowChangeNoByte) {
  Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 2, 16, 16);
  spec.window = 40;
  OwnedProblem problem(spec, {600}, {600});
  problem.Randomize(random_);
  Run(problem);
  const std::vector<std::byte> before = problem.output.bytes();
  for (int64_t i = 0; i < 250 * 32; ++i) {
    problem.key.Set(i, 1e30);
    problem.value.Set(i, -1e30);
  }
  Run(problem);
  constexpr size_t kRow = 32 * sizeof(float);
  EXPECT_EQ(
      0, std::memcmp(before.data() + 290 * kRow, problem.output.data() + 290 * kRow, 310 * kRow));
  EXPECT_NE(0, std::memcmp(before.data(), problem.output.data(), 290 * kRow));
}

TEST_P(PositionsTest, AloneAndInAnyBatchGiveTheSameBytes) {
  for (const DType dtype : kFloatTypes) {
    const OwnedBias bias(random_, 3, 33, true);
    Spec spec = MakeSpec(dtype, Vanilla{}, 3, 32, 40);
    spec.bias = bias.view();
    spec.window = 77;
    std::vector<std::unique_ptr<OwnedProblem>> owned;
    std::vector<OwnedProblem*> problems;
    constexpr int kLongest = kSanitized ? 200 : 500;
    for (int i = 0; i < 12; ++i) {
      const std::vector<int32_t> lengths = {UpTo(kLongest), 3};
      owned.push_back(std::make_unique<OwnedProblem>(spec, lengths, lengths));
      owned.back()->Randomize(random_);
      problems.push_back(owned.back().get());
    }
    ExpectTheSameAloneAndTogether(problems);
  }
}

// Eight times the length takes about eight times as long, and not 64.
TEST_P(PositionsTest, AWindowedLayerIsLinearInItsLength) {
  if (kSanitized) GTEST_SKIP() << "says nothing about time";
  const auto seconds = [&](int32_t length) {
    Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 2, 64, 64);
    spec.window = 64;
    OwnedProblem problem(spec, {length}, {length});
    double least = INFINITY;
    for (int run = 0; run < 5; ++run) {
      const auto start = std::chrono::steady_clock::now();
      Run(problem);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      least = std::min(least, taken.count());
    }
    return least;
  };
  const double shorter = seconds(4096);
  const double longer = seconds(32768);
  EXPECT_LT(longer, 24 * shorter);
  std::cout << "4096 tokens " << shorter * 1e3 << " ms, 32768 tokens " << longer * 1e3 << " ms\n";
}

INSTANTIATE_TEST_SUITE_P(Table, PositionsTest, testing::ValuesIn(CpuRows({KernelName::kVanilla})),
                         NameOfRow);

// Queries of a cluster share their scores, so places cannot count.
TEST(PositionsRefusedTest, OnlyVanillaTakesWindowsAndBiases) {
  const std::vector<float> slopes = {0.5f};
  for (const Kernel& kernel :
       {Kernel(PlainClusters(4)), Kernel(ImprovedClusters(4, 4)), Kernel(CastOf(0))}) {
    Spec spec = MakeSpec(DType::kFloat32, kernel, 1, 8, 8, 4);
    EXPECT_NE(FindVariant(CpuVariants(), spec), nullptr);
    Spec windowed = spec;
    windowed.window = 3;
    EXPECT_EQ(FindVariant(CpuVariants(), windowed), nullptr) << Describe(windowed);
    Spec biased = spec;
    biased.bias.slopes = slopes.data();
    EXPECT_EQ(FindVariant(CpuVariants(), biased), nullptr) << Describe(biased);
  }
}

}  // namespace
}  // namespace castor::attention

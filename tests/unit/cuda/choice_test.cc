// The choice of a kernel for a sequence on a GPU, tested without a GPU.

#include "engine/attention/cuda/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/support/seeded.h"

namespace castor::attention::cuda {
namespace {

constexpr Capabilities kHopper{90};
constexpr Capabilities kAmpere{80};

Spec MakeSpec(DType dtype, int64_t heads, int64_t head_dim, int64_t value_dim) {
  Spec spec;
  spec.dtype = dtype;
  spec.heads = spec.kv_heads = heads;
  spec.head_dim = head_dim;
  spec.value_dim = value_dim;
  spec.softmax_scale = 0.125;
  return spec;
}

std::vector<int32_t> Offsets(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> offsets = {0};
  for (int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<int32_t>(length));
  return offsets;
}

// Segments without their positions: (path, number of sequences).
std::vector<std::pair<Path, int64_t>> Shape(const std::vector<Segment>& segments) {
  std::vector<std::pair<Path, int64_t>> shape;
  for (const Segment& segment : segments) shape.emplace_back(segment.path, segment.count);
  return shape;
}

TEST(FlashFitsTest, TakesHalfTypesUpToItsDims) {
  EXPECT_TRUE(FlashFits(MakeSpec(DType::kBFloat16, 8, 256, 3), kHopper));
  EXPECT_TRUE(FlashFits(MakeSpec(DType::kFloat16, 65535, 1, 1), kAmpere));
  EXPECT_FALSE(FlashFits(MakeSpec(DType::kFloat32, 8, 64, 64), kHopper));
  EXPECT_FALSE(FlashFits(MakeSpec(DType::kBFloat16, 8, 257, 64), kHopper));
  EXPECT_FALSE(FlashFits(MakeSpec(DType::kBFloat16, 8, 64, 257), kHopper));
  EXPECT_FALSE(FlashFits(MakeSpec(DType::kBFloat16, 65536, 8, 8), kHopper));
  EXPECT_FALSE(FlashFits(MakeSpec(DType::kFloat16, 8, 64, 64), Capabilities{75}));
}

// These kernels would multiply the -infinity of hidden keys by 0, which gives NaN, or overflow with
// a huge scale.
TEST(ScaleFitsTest, OddScalesAreTheMathPaths) {
  Spec spec = MakeSpec(DType::kBFloat16, 8, 64, 64);
  for (const double scale : {0.0, -0.0, 1e-46, -1e-40, 1e30, -3e38}) {
    spec.softmax_scale = scale;
    EXPECT_FALSE(FlashFits(spec, kHopper)) << scale;
    EXPECT_FALSE(EfficientFits(spec, kHopper)) << scale;
  }
  for (const double scale : {1e-6, 0.125, -0.125, 1.0, 1e6}) {
    spec.softmax_scale = scale;
    EXPECT_TRUE(FlashFits(spec, kHopper)) << scale;
    EXPECT_TRUE(EfficientFits(spec, kHopper)) << scale;
  }
}

// Fewer padded keys take less memory; the efficient kernel gets a copy of each key for each head.
TEST(SharedHeadsTest, AreCountedInTheWorkspace) {
  const std::vector<int32_t> few = {0, 1};
  const std::vector<int32_t> many = {0, 4096};
  const auto bytes = [&](Path path, int64_t kv_heads, int64_t dim) {
    Spec spec = MakeSpec(path == Path::kFlash ? DType::kBFloat16 : DType::kFloat32, 8, dim, dim);
    spec.kv_heads = kv_heads;
    return VanillaWorkspaceBytes(spec, path, few, many);
  };
  EXPECT_LT(bytes(Path::kFlash, 2, 60), bytes(Path::kFlash, 8, 60));
  EXPECT_EQ(bytes(Path::kFlash, 2, 64), bytes(Path::kFlash, 8, 64));
  EXPECT_GE(bytes(Path::kEfficient, 2, 64), 4096 * 8 * (64 + 64) * 4);
}

TEST(EfficientFitsTest, TakesFloat32AndLargeDims) {
  EXPECT_TRUE(EfficientFits(MakeSpec(DType::kFloat32, 8, 64, 64), kHopper));
  EXPECT_TRUE(EfficientFits(MakeSpec(DType::kBFloat16, 8, 1000, 30), kHopper));
  EXPECT_FALSE(EfficientFits(MakeSpec(DType::kFloat32, 8, 65537, 64), kHopper));
  EXPECT_FALSE(EfficientFits(MakeSpec(DType::kFloat32, 65536, 64, 64), kHopper));
}

TEST(PlacesTest, OnlyTheMathPathKnowsOfWhatElseARequestDoesToScores) {
  const auto math_only = [](auto change) {
    Spec spec = MakeSpec(DType::kBFloat16, 8, 64, 64);
    EXPECT_TRUE(FlashFits(spec, kHopper));
    change(spec);
    EXPECT_FALSE(FlashFits(spec, kHopper));
    EXPECT_FALSE(EfficientFits(spec, kHopper));
    return QueryStep(spec, Path::kMath, 4096, 8192, kHopper);
  };
  EXPECT_GT(math_only([](Spec& spec) { spec.softcap = 30; }), 0);
  EXPECT_GT(math_only([](Spec& spec) { spec.key_bias_heads = 1; }), 0);
  EXPECT_GT(math_only([](Spec& spec) { spec.log_sum_exp = true; }), 0);
  EXPECT_EQ(math_only([](Spec& spec) { spec.placed = true; }), 0);
  EXPECT_EQ(math_only([](Spec& spec) { spec.window = {.left = 5, .always_visible = 2}; }), 0);
}

TEST(PlacesTest, RowsWithoutAKeyGoToTheMathPath) {
  Spec spec = MakeSpec(DType::kBFloat16, 8, 64, 64);
  spec.kernel = Vanilla{.causal = true};
  for (const Path base : {Path::kFlash, Path::kEfficient}) {
    EXPECT_EQ(PathOf(spec, base, 100, 101), base);
    EXPECT_EQ(PathOf(spec, base, 101, 100), Path::kMath);
  }
  EXPECT_EQ(QueryStep(spec, Path::kFlash, 5000, 100, kHopper), 0);
  spec.kernel = Vanilla{};
  EXPECT_EQ(PathOf(spec, Path::kFlash, 101, 100), Path::kFlash);
}

// A row that ignored a window or a bias would be wrong without a word.
TEST(PlacesTest, WindowsAreForFlashAndMathBiasesForMathAlone) {
  const std::vector<float> slopes(8, 0.5f);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Spec plain = MakeSpec(dtype, 8, 64, 64);
    Spec windowed = plain;
    windowed.window = SymmetricWindow(64);
    Spec biased = plain;
    biased.bias.slopes = slopes.data();
    EXPECT_EQ(FlashFits(windowed, kHopper), FlashFits(plain, kHopper));
    EXPECT_FALSE(FlashFits(biased, kHopper));
    for (const Spec& spec : {windowed, biased}) {
      EXPECT_FALSE(EfficientFits(spec, kHopper));
      EXPECT_EQ(QueryStep(spec, Path::kFlash, 65536, 65536, kHopper), 0) << "cut at no query";
    }
  }
}

TEST(PlacesTest, AWindowsBlocksMeetFewKeysHoweverManyThereAre) {
  Spec spec = MakeSpec(DType::kFloat32, 8, 64, 64);
  EXPECT_EQ(MathBlockKeys(spec, 1 << 20), 1 << 20);
  spec.window = SymmetricWindow(64);
  EXPECT_EQ(MathBlockKeys(spec, 1 << 20), kMathMostRows + 128);
  EXPECT_EQ(MathBlockKeys(spec, 100), 100);
  spec.window = SymmetricWindow(INT64_MAX / 2);
  EXPECT_EQ(MathBlockKeys(spec, 1 << 20), 1 << 20);
  const auto bytes = [&](int64_t tokens) {
    return VanillaWorkspaceBytes(spec, Path::kMath, Offsets({tokens}), Offsets({tokens}));
  };
  spec.window = SymmetricWindow(64);
  EXPECT_LT(bytes(1 << 17), 3 * bytes(1 << 16)) << "linear";
}

TEST(PlanSegmentsTest, KeepsWithinAGrid) {
  const Spec spec = MakeSpec(DType::kFloat32, 1, 8, 8);
  const std::vector<int32_t> cu = Offsets(std::vector<int64_t>(kMaxGridSequences + 5, 1));
  EXPECT_THAT(Shape(PlanSegments(spec, Path::kEfficient, cu, cu)),
              testing::ElementsAre(std::pair(Path::kEfficient, kMaxGridSequences),
                                   std::pair(Path::kEfficient, 5)));
}

// The core of batch invariance: a sequence takes the same path alone and in any batch, and the
// launches cover each sequence once, in order.
TEST(PlanSegmentsTest, ASequencesPathIsItsOwn) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const Spec spec = MakeSpec(random() % 2 ? DType::kFloat16 : DType::kBFloat16, 1 + random() % 20,
                               random() % 2 ? 64 : 80, 64);
    std::vector<int64_t> lengths(1 + random() % 12);
    for (int64_t& length : lengths) {
      length = random() % 2 ? 128 * (1 + random() % 40) : 1 + random() % 3000;
    }
    const std::vector<int32_t> cu = Offsets(lengths);
    const std::vector<Segment> segments = PlanSegments(spec, Path::kFlash, cu, cu);
    int64_t next = 0;
    for (const Segment& segment : segments) {
      ASSERT_EQ(segment.first, next);
      next += segment.count;
      for (int64_t s = segment.first; s < segment.first + segment.count; ++s) {
        const std::vector<int32_t> alone = Offsets({lengths[s]});
        EXPECT_EQ(PlanSegments(spec, Path::kFlash, alone, alone)[0].path, segment.path);
      }
    }
    EXPECT_EQ(next, static_cast<int64_t>(lengths.size()));
  }
}

// 2^31 elements of fp32 keys are 8 GiB: the kernel's index would wrap.
TEST(PlanSegmentsTest, KeysBeyond32BitsAreTheMathPaths) {
  const Spec spec = MakeSpec(DType::kFloat32, 8, 56, 64);
  constexpr int64_t kFits = 3'700'000, kWraps = 4'200'000;  // tokens of 8 * 64 elements
  const auto offsets = Offsets({kFits, kWraps, 100, 100});
  EXPECT_THAT(Shape(PlanSegments(spec, Path::kEfficient, offsets, offsets)),
              testing::ElementsAre(std::pair(Path::kEfficient, 1), std::pair(Path::kMath, 1),
                                   std::pair(Path::kEfficient, 2)));
  EXPECT_EQ(PathOf(spec, Path::kEfficient, 1, kWraps), Path::kMath);
  EXPECT_EQ(PathOf(spec, Path::kEfficient, kWraps, 1), Path::kEfficient);
  EXPECT_EQ(QueryStep(spec, Path::kEfficient, kWraps, kWraps, kHopper),
            MathBlockRows(spec.heads, kWraps));
}

// A cut between tiles leaves the tiles as they were.
TEST(QueryStepTest, IsTilesThatFillTheDevice) {
  Capabilities device = kHopper;
  device.multiprocessors = 132;
  for (const bool causal : {false, true}) {
    for (const int64_t heads : {1, 3, 8, 12, 264, 1000}) {
      Spec spec = MakeSpec(DType::kBFloat16, heads, 64, 64);
      spec.kernel = Vanilla{causal};
      for (const Path base : {Path::kFlash, Path::kEfficient}) {
        const int64_t step = QueryStep(spec, base, 7001, 7001, device);
        EXPECT_EQ(step % 128, 0);
        EXPECT_GE(step / 128 * heads, 264);
        EXPECT_LT((step / 128 - 1) * heads, 264);
      }
    }
  }
}

TEST(QueryStepTest, IsNoneWhereABlockDependsOnTheOthers) {
  Spec spec = MakeSpec(DType::kBFloat16, 8, 64, 64);
  EXPECT_GT(QueryStep(spec, Path::kFlash, 4097, 4097, kHopper), 0);
  EXPECT_EQ(QueryStep(spec, Path::kMath, 4097, 4097, kHopper), MathBlockRows(8, 4097));
  spec.kernel = Vanilla{true};
  EXPECT_EQ(QueryStep(spec, Path::kMath, 4097, 4097, kHopper), 0) << "the product spans all keys";
  spec.kernel = Clustered{};
  EXPECT_EQ(QueryStep(spec, Path::kFlash, 4097, 4097, kHopper), 0);
}

TEST(MathBlockRowsTest, BoundsTheScoreBlock) {
  EXPECT_EQ(MathBlockRows(8, 16), 1024);
  EXPECT_EQ(MathBlockRows(1, int64_t{1} << 40), 1);
  for (int64_t keys : {1, 1000, 65536}) {
    EXPECT_LE(MathBlockRows(8, keys) * 8 * keys * 4, int64_t{64} << 20);
  }
  EXPECT_EQ(MathBlockRows(INT64_MAX, INT64_MAX), 1);
}

TEST(VanillaWorkspaceTest, CountsCopiesForOddDimsAndTheBlocksOfTheMathPath) {
  const auto bytes = [](const Spec& spec, Path base, const std::vector<int64_t>& lengths) {
    const std::vector<int32_t> offsets = Offsets(lengths);
    return VanillaWorkspaceBytes(spec, base, offsets, offsets);
  };
  const Spec fits = MakeSpec(DType::kBFloat16, 8, 64, 64);
  EXPECT_EQ(bytes(fits, Path::kFlash, {100, 200}), 300 * 8 * 4);
  const Spec odd = MakeSpec(DType::kBFloat16, 8, 65, 3);
  EXPECT_EQ(bytes(odd, Path::kFlash, {100}), 100 * 8 * 4 + 2 * 100 * 8 * (72 + 72) * 2);
  EXPECT_EQ(bytes(MakeSpec(DType::kFloat32, 8, 64, 64), Path::kEfficient, {100}), 0);
  EXPECT_GE(bytes(fits, Path::kEfficient, {100}), 100 * 8 * 64 * 4) << "its sums";
  const int64_t keys_and_values = 1000 * 8 * 128 * 4;
  EXPECT_GE(bytes(fits, Path::kMath, {1000}), keys_and_values + 2 * 1000 * 8 * 1000 * 4);
  EXPECT_EQ(bytes(fits, Path::kMath, {1000}), bytes(fits, Path::kMath, {10, 1000, 500}))
      << "one sequence at a time";
  EXPECT_EQ(bytes(MakeSpec(DType::kFloat32, 1, int64_t{1} << 60, 64), Path::kMath, {1000}),
            INT64_MAX);
}

}  // namespace
}  // namespace castor::attention::cuda

// Every row of the CPU's variant table that computes vanilla attention, against the plain
// double-precision twin.

#include "tests/support/twins/vanilla.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/attention/variant_test.h"

namespace castor::attention {
namespace {

class VanillaTest : public VariantTest {
 protected:
  static void ExpectRight(OwnedProblem& problem) {
    Run(problem);
    EXPECT_LE(RelativeError(problem, VanillaReference(problem.spec, problem.view)),
              Tolerance(problem.spec.dtype));
  }

  void ExpectRightWithGaps(const Spec& spec, const std::vector<int32_t>& query_lengths,
                           const std::vector<int32_t>& key_lengths) {
    const Gaps gaps = {UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1};
    OwnedProblem problem(spec, query_lengths, key_lengths, gaps);
    problem.Randomize(random_);
    SCOPED_TRACE(Describe(spec));
    ExpectRight(problem);
  }
};

// A sequence's tiles share keys and values, packed once, if there are three or more.
TEST_P(VanillaTest, MatchesTheReferenceOnRandomShapes) {
  for (int round = 0; round < Scaled(60); ++round) {
    const DType dtype = kFloatTypes[round % 3];
    const bool causal = round % 4 == 3;
    const Spec spec =
        WithSharedHeads(MakeSpec(dtype, Vanilla{causal}, UpTo(4), UpTo(100), UpTo(100)));
    std::vector<int32_t> query_lengths;
    std::vector<int32_t> key_lengths;
    for (int sequences = UpTo(4); sequences > 0; --sequences) {
      query_lengths.push_back(UpTo(sequences == 1 ? 700 : 60));
      key_lengths.push_back(causal ? query_lengths.back() : UpTo(sequences == 1 ? 700 : 60));
    }
    SCOPED_TRACE(testing::Message() << "round " << round);
    ExpectRightWithGaps(spec, query_lengths, key_lengths);
  }
}

// Each width of a tile, each remainder and the edges of the blocks of keys.
TEST_P(VanillaTest, MatchesTheReferenceAtEveryLength) {
  for (int32_t length = 1; length <= 60; ++length) {
    for (const bool causal : {false, true}) {
      OwnedProblem problem(MakeSpec(UsualType(), Vanilla{causal}, 1, 16, 24), {length}, {length});
      problem.Randomize(random_);
      SCOPED_TRACE(testing::Message() << "length " << length << causal);
      ExpectRight(problem);
    }
  }
  for (const int32_t keys : {127, 128, 129, 255, 256, 257, 1000}) {
    for (const int32_t queries : {1, 191, 192, 193, 385}) {
      OwnedProblem problem(MakeSpec(UsualType(), Vanilla{}, 1, 8, 5), {queries}, {keys});
      problem.Randomize(random_);
      SCOPED_TRACE(testing::Message() << queries << " x " << keys);
      ExpectRight(problem);
    }
  }
}

TEST_P(VanillaTest, TakesTheDimensionsThatModelsHave) {
  for (const int64_t dim : {1, 2, 3, 32, 40, 64, 72, 80, 96, 128, 192, 256, 576}) {
    OwnedProblem problem(MakeSpec(UsualType(), Vanilla{}, 2, dim, dim), {37, 3}, {37, 3});
    problem.Randomize(random_);
    SCOPED_TRACE(testing::Message() << "dim " << dim);
    ExpectRight(problem);
  }
}

// The output for one key is its value: every finite number survives the conversion to float32 and
// back. Instructions for bfloat16 take its subnormal numbers for zeros.
TEST_P(VanillaTest, KeepsEveryHalf) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    OwnedProblem problem(MakeSpec(dtype, Vanilla{}, 1, 1, 1 << 16), {1}, {1});
    auto* const values = reinterpret_cast<uint16_t*>(problem.value.data());
    for (int bits = 0; bits < 1 << 16; ++bits) values[bits] = static_cast<uint16_t>(bits);
    Run(problem);
    const auto* const outputs = reinterpret_cast<const uint16_t*>(problem.output.data());
    for (int bits = 0; bits < 1 << 16; ++bits) {
      if (std::isnan(problem.value.Get(bits))) {
        ASSERT_TRUE(std::isnan(problem.output.Get(bits))) << bits;
      } else if (dtype == DType::kBFloat16 && std::abs(problem.value.Get(bits)) < 0x1p-126) {
        ASSERT_TRUE(problem.output.Get(bits) == problem.value.Get(bits) ||
                    (problem.output.Get(bits) == 0 && OnlyBFloat16()));
      } else {
        ASSERT_EQ(outputs[bits], bits == 0x8000 ? outputs[0x8000] : bits) << NameOf(dtype);
      }
    }
    EXPECT_EQ(problem.output.Get(0x8000), 0);  // of either sign
  }
}

// Two keys of equal weight: their mean is exact in float32 and rounded once.
TEST_P(VanillaTest, RoundsToNearestEven) {
  constexpr int64_t kPairs = 50000;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    OwnedProblem problem(MakeSpec(dtype, Vanilla{}, 1, 1, kPairs), {1}, {2});
    for (int64_t i = 0; i < kPairs; ++i) {
      // Adjacent values make ties; exponents reach down to float16's subnormals.
      const double value =
          std::ldexp(1 + (random_() % 4096) / 4096.0, static_cast<int>(random_() % 40) - 25);
      problem.value.Set(i, value);
      problem.value.Set(kPairs + i, random_() % 2 == 0 ? value * (1 + 0x1p-7) : -value);
    }
    Run(problem);
    Elements expected(dtype, kPairs);
    for (int64_t i = 0; i < kPairs; ++i) {
      expected.Set(i, (problem.value.Get(i) + problem.value.Get(kPairs + i)) / 2);
      ASSERT_EQ(problem.output.Get(i), expected.Get(i)) << NameOf(dtype) << " pair " << i;
    }
  }
}

TEST_P(VanillaTest, SurvivesHugeScores) {
  // Scores so far apart that one key takes all the weight: no overflow, and exactly that key's
  // value.
  OwnedProblem problem(MakeSpec(UsualType(), Vanilla{}, 1, 8, 8), {5}, {20});
  problem.Randomize(random_, 1e12, 1e12);
  ExpectRight(problem);
}

TEST_P(VanillaTest, KeepsDenormals) {
  OwnedProblem tiny(MakeSpec(DType::kFloat16, Vanilla{}, 2, 16, 16), {33}, {33});
  tiny.Randomize(random_, 1e-6, 1e-6, 1e-6);  // float16's smallest normal number is 6e-5
  Run(tiny);
  const std::vector<double> expected = VanillaReference(tiny.spec, tiny.view);
  for (int64_t i = 0; i < tiny.output.size(); ++i) {
    EXPECT_NEAR(tiny.output.Get(i), expected[i], 0x1p-24) << "in units of float16's last place";
  }
  OwnedProblem queries(MakeSpec(DType::kFloat32, Vanilla{}, 2, 16, 16), {33}, {33});
  queries.Randomize(random_, 1e-40, 1e-40);
  ExpectRight(queries);
}

TEST_P(VanillaTest, StaysWithinToleranceOverManyKeys) {
  OwnedProblem problem(MakeSpec(UsualType(), Vanilla{}, 1, 16, 16), {9}, {65536});
  problem.Randomize(random_);
  ExpectRight(problem);
}

INSTANTIATE_TEST_SUITE_P(Table, VanillaTest, testing::ValuesIn(CpuRows({KernelName::kVanilla})),
                         NameOfRow);

}  // namespace
}  // namespace castor::attention

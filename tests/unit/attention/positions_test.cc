// Positions, windows, biases and softcaps: every row of the CPU's variant table that computes
// vanilla attention against the plain double-precision twin.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>
#include <vector>

#include "engine/attention/parallel.h"
#include "engine/attention/resolve.h"
#include "engine/base/error.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {
namespace {

class PositionsTest : public VariantTest {
 protected:
  void ExpectRight(const Spec& spec, const std::vector<int32_t>& lengths) {
    OwnedProblem problem(WithLogSumExp(spec), lengths, lengths);
    problem.Randomize(random_);
    ExpectRight(problem);
  }

  static void ExpectRight(const OwnedProblem& problem) {
    Run(problem);
    std::vector<double> log_sum_exp;
    const std::vector<double> expected = VanillaReference(problem.spec, problem.view, &log_sum_exp);
    SCOPED_TRACE(testing::Message()
                 << Describe(problem.spec) << ", the first of " << problem.view.sequences()
                 << " sequences with " << problem.cu_seqlens_q[1] << " queries and "
                 << problem.cu_seqlens_k[1] << " keys");
    EXPECT_LE(RelativeError(problem, expected), Tolerance(problem.spec.dtype));
    for (size_t i = 0; i < problem.log_sum_exp.size(); ++i) {
      ASSERT_TRUE(IsNear(problem.log_sum_exp[i], log_sum_exp[i], 4e-6))
          << "row " << i << ": " << problem.log_sum_exp[i] << " for " << log_sum_exp[i];
    }
  }

  std::vector<float> RandomBiases(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> biases(count);
    for (float& bias : biases) bias = 2 * normal(random_);
    return biases;
  }
};

TEST_P(PositionsTest, WindowsMatchTheReferenceAtEveryEdge) {
  for (const int64_t window : {0, 1, 5, 16, 63, 64, 130}) {
    Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 1, 8, 5);
    spec.window = SymmetricWindow(window);
    const auto w = static_cast<int32_t>(window);
    for (const int32_t length : {1, w, w + 1, w + 2, 2 * w + 1, 127, 128, 129, 193, 400, 700}) {
      if (length > 0) ExpectRight(spec, {length});
    }
  }
}

TEST_P(PositionsTest, TablesMatchTheReferenceAtEveryEdge) {
  for (const int64_t reach : {0, 1, 7, 128}) {
    const std::vector<float> table = RandomBiases(2 * (2 * reach + 1));
    Spec spec = MakeSpec(UsualType(), Vanilla{}, 2, 8, 5);
    spec.bias = {.table = table.data(), .reach = reach};
    for (const int32_t length : {1, 2, 7, 8, 9, 48, 49, 129, 300}) ExpectRight(spec, {length});
  }
}

// Shards whose keys are all far from the queries, on either side: in float32 their distances are
// alike.
TEST_P(PositionsTest, SlopesAreExactHoweverFarTheKeysAre) {
  for (const int64_t shift :
       {int64_t{-1} << 33, int64_t{-200}, int64_t{-30}, (int64_t{1} << 24) + 1, int64_t{1} << 31}) {
    for (const std::vector<float>& slopes :
         {std::vector{0.5f, 0.01f}, std::vector{-0.25f, 1e15f}}) {
      for (const double scale : {0.25, 3.0}) {
        Spec spec = WithLogSumExp(MakeSpec(UsualType(), Vanilla{}, 2, 16, 16));
        spec.softmax_scale = scale;
        spec.bias.slopes = slopes.data();
        spec.placed = true;
        OwnedProblem problem(spec, {60}, {170});
        problem.Randomize(random_);
        problem.places[0].shift = shift;
        ExpectRight(problem);
      }
    }
  }
}

// What Resolve takes of any numbers that a request may have is right, and no row that sees a key is
// as if it saw none.
TEST_P(PositionsTest, AnyNumberIsRightOrRefused) {
  const auto one_of = [&](std::initializer_list<double> numbers) {
    return numbers.begin()[UpTo(static_cast<int>(numbers.size())) - 1];
  };
  constexpr int64_t kQueries = 20, kKeys = 70;
  constexpr float kMost = std::numeric_limits<float>::max();
  const std::vector<std::byte> bytes(kKeys * 16 * sizeof(float));
  const auto tensor = [&](std::vector<int64_t> shape) {
    TensorInput input{.dtype = DType::kFloat32, .shape = std::move(shape), .pieces = {bytes}};
    input.pieces[0] = input.pieces[0].first(*NumBytes(input.dtype, input.shape));
    return input;
  };
  int refused = 0;
  const int rounds = Scaled(600);
  for (int round = 0; round < rounds; ++round) {
    AttentionRequest request;
    request.query = tensor({kQueries, 2, 8});
    request.key = request.value = tensor({kKeys, 2, 8});
    request.query_lengths = {kQueries};
    request.key_lengths = {kKeys};
    request.kernel = Vanilla{.causal = round % 4 == 0};
    request.return_log_sum_exp = round % 3 != 0;
    request.softmax_scale = one_of({0, -1e-320, 1e-45, 0.3, 1, -5, 1e17, -1e18, 1e19, 3e38});
    request.softcap = one_of({0, 0, 0, 5e-324, 1e-44, 2, 1e30, kMost});
    Positions& at = request.positions;
    at.query = {static_cast<int64_t>(one_of({0, 3, -60, 0x1p25, 0x1p32}))};
    at.key = {static_cast<int64_t>(one_of({0, 0, 5, -0x1p31}))};
    if (UpTo(2) == 1) at.window = {.left = UpTo(40), .right = UpTo(40), .always_visible = UpTo(9)};
    // Next to a bias of 3e38 the oracle, too, takes no notice of smaller ones.
    const float slope = static_cast<float>(round % 2 == 0 ? one_of({0, 1e-45, 0.5, -0.1, 1e19})
                                                          : one_of({-1e22, 1e28, 1e37}));
    if (UpTo(2) == 1) at.alibi_slopes = {slope, kMost * static_cast<float>(UpTo(3) == 1)};
    const double most_bias = round % 2 == 0 ? kMost : 1;
    std::vector<float> table(2 * 9, static_cast<float>(one_of({0, 1, -most_bias, most_bias})));
    for (float& bias : table) bias *= static_cast<float>(UpTo(2) - 1);
    if (UpTo(3) == 1) at.relative_bias = tensor({2, 9});
    const bool biased = !at.relative_bias.has_value() && UpTo(2) == 1;
    if (biased) request.key_bias = tensor({kKeys});

    const absl::StatusOr<Resolved> resolved =
        Resolve(request, Table(), NoCastLayer, /*max_sequences=*/1);
    if (!resolved.ok()) {
      ++refused;
      const std::string field = FieldOf(resolved.status()).value_or("");
      EXPECT_TRUE(field == "softmax_scale" || field == "softcap" ||
                  field.starts_with("positions.alibi_slopes["))
          << resolved.status();
      continue;
    }
    Spec spec = resolved->spec;
    spec.log_sum_exp = true;
    if (at.relative_bias.has_value()) spec.bias.table = table.data();
    OwnedProblem problem(spec, {kQueries}, {kKeys});
    problem.Randomize(random_);
    if (spec.placed) problem.places = resolved->places;
    for (float& bias : problem.key_bias) {
      bias = static_cast<float>(one_of({-most_bias, -most_bias, -most_bias, 1e-40, -INFINITY}));
    }
    SCOPED_TRACE(testing::Message() << "round " << round << ", scale " << spec.softmax_scale
                                    << ", softcap " << spec.softcap << ", slope " << slope);
    if (std::abs(spec.softmax_scale) <= 5) {
      ExpectRight(problem);
      continue;
    }
    Run(problem);  // the last digit of a score decides
    std::vector<double> exact;
    VanillaReference(spec, problem.view, &exact);
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_EQ(problem.log_sum_exp[i] == -INFINITY, exact[i] == -INFINITY) << i;
      if (std::abs(exact[i]) > kMost) continue;
      // A score is a float32 sum, whose terms may cancel out.
      ASSERT_NEAR(problem.log_sum_exp[i], exact[i],
                  4e-6 * (1 + std::abs(exact[i]) + std::abs(spec.softmax_scale)))
          << i;
    }
  }
  EXPECT_GT(refused, rounds / 10);
  EXPECT_LT(refused, rounds * 3 / 4);
}

// A window and visible keys far from it, over steps of many blocks.
TEST_P(PositionsTest, VisibleKeysLieApartFromTheWindow) {
  for (const int64_t visible : {1, 100, 128, 129, 300}) {
    for (const bool causal : {false, true}) {
      Spec spec = WithLogSumExp(MakeSpec(UsualType(), Vanilla{.causal = causal}, 1, 8, 8));
      spec.window = {.left = 40, .right = 10, .always_visible = visible};
      for (const int32_t queries : {1, 200, 3000}) {
        OwnedProblem problem(spec, {queries}, {3000});
        problem.Randomize(random_);
        ExpectRight(problem);
      }
    }
  }
}

// Keys in shards, each at its own position, of which answers merge into the whole's.
TEST_P(PositionsTest, ShardsWithPositionsSumUpToTheWhole) {
  Spec spec = WithLogSumExp(MakeSpec(UsualType(), Vanilla{.causal = true}, 2, 16, 16));
  spec.window = {.left = 150, .right = -1, .always_visible = 5};
  const std::vector<float> slopes = {0.01f, 0.1f};
  spec.bias.slopes = slopes.data();
  spec.placed = true;
  OwnedProblem whole(spec, {200}, {500});
  whole.Randomize(random_);
  whole.places[0] = {.shift = 300, .visible = 5};
  Run(whole);
  std::vector<double> sums(200 * 2);
  for (const auto& [begin, end] : {std::pair(0, 130), std::pair(130, 131), std::pair(131, 500)}) {
    OwnedProblem shard(spec, {200}, {end - begin});
    CopySequence(whole, 0, shard, 0, begin, end);
    shard.places[0] = {.shift = 300 - begin, .visible = std::max(0, 5 - begin)};
    Run(shard);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += std::exp(shard.log_sum_exp[i]);
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_TRUE(IsNear(std::log(sums[i]), whole.log_sum_exp[i], 2e-6)) << i;
  }
}

// A table read backwards would give other rows.
TEST_P(PositionsTest, ATableIsReadByTheKeysPlaceLessTheQuerys) {
  constexpr float kFarBelow = -1e6f;
  const std::vector<float> next_key_only = {kFarBelow, kFarBelow, 0};  // of -1, 0 and 1
  Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 1, 4, 1);
  spec.bias = {.table = next_key_only.data(), .reach = 1};
  spec.window = SymmetricWindow(1);
  OwnedProblem problem(spec, {100}, {100});
  problem.Randomize(random_);
  Run(problem);
  for (int64_t i = 0; i + 1 < 100; ++i) {
    EXPECT_EQ(problem.Output(i, 0, 0), problem.value.Get(i + 1)) << i;
  }
}

TEST_P(PositionsTest, KeysOutsideOfTheWindowOrLaterChangeNoByte) {
  Spec spec = MakeSpec(UsualType(), Vanilla{.causal = true}, 2, 16, 16);
  spec.window.left = 40;
  OwnedProblem problem(spec, {600}, {600});
  problem.Randomize(random_);
  Run(problem);
  const std::vector<std::byte> before = problem.output.bytes();
  for (int64_t i = 0; i < 600 * 32; ++i) {
    if (i >= 250 * 32 && i < 500 * 32) continue;
    problem.key.Set(i, 1e30);
    problem.value.Set(i, -1e30);
  }
  Run(problem);
  const size_t row = 32 * SizeOf(spec.dtype);
  EXPECT_EQ(0,
            std::memcmp(before.data() + 290 * row, problem.output.data() + 290 * row, 210 * row));
  EXPECT_NE(0, std::memcmp(before.data(), problem.output.data(), 290 * row));
}

// Sequences read only their part of a table that is much longer: the rest may hold anything, and
// takes no time.
TEST_P(PositionsTest, TablesBeyondTheSequenceAreNotRead) {
  constexpr int64_t kReach = 1 << 20, kNear = 400;
  std::vector<float> table(2 * kReach + 1, NAN);
  std::normal_distribution<float> normal;
  for (int64_t i = kReach - kNear; i <= kReach + kNear; ++i) table[i] = normal(random_);
  Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 1, 8, 8);
  spec.bias = {.table = table.data(), .reach = kReach, .slopes = nullptr};
  ExpectRight(spec, std::vector<int32_t>{1, 300, 7});
}

// Eight times the length takes about eight times the processor's time, and not 64: a count of work
// that other processes do not change much.
TEST_P(PositionsTest, AWindowedLayerIsLinearInItsLength) {
  if (kSanitized) GTEST_SKIP() << "says nothing about time";
  const int threads = ParallelWorkers();
  SetParallelWorkers(1);
  const auto seconds = [&](int32_t length) {
    Spec spec = MakeSpec(UsualType(), Vanilla{}, 2, 64, 64);
    spec.window = SymmetricWindow(64);
    OwnedProblem problem(spec, {length}, {length});
    double least = INFINITY;
    for (int run = 0; run < 5; ++run) {
      const std::clock_t start = std::clock();
      Run(problem);
      least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return least;
  };
  const double shorter = seconds(4096);
  const double longer = seconds(32768);
  SetParallelWorkers(threads);
  EXPECT_LT(longer, 24 * shorter);
  std::cout << "4096 tokens " << shorter * 1e3 << " ms, 32768 tokens " << longer * 1e3 << " ms\n";
}

INSTANTIATE_TEST_SUITE_P(Table, PositionsTest, testing::ValuesIn(CpuRows({KernelName::kVanilla})),
                         NameOfRow);

}  // namespace
}  // namespace castor::attention

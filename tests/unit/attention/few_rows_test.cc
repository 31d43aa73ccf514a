// Sequences of few queries and many keys, which the CPU's vanilla attention divides by keys: every
// row of its variant table against the plain double-precision twin, around the borders of parts and
// of blocks, and byte for byte alone, in batches, on any threads and with any sharing of heads.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "engine/attention/parallel.h"
#include "engine/attention/vanilla_cpu.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {
namespace {

class FewRowsTest : public VariantTest {
 protected:
  ~FewRowsTest() override { SetParallelWorkers(threads_); }

  static void ExpectRight(OwnedProblem& problem) {
    Run(problem);
    std::vector<double> log_sum_exp;
    const std::vector<double> expected = VanillaReference(problem.spec, problem.view, &log_sum_exp);
    SCOPED_TRACE(testing::Message() << Describe(problem.spec) << ", " << problem.cu_seqlens_q[1]
                                    << " queries and " << problem.cu_seqlens_k[1] << " keys");
    EXPECT_LE(RelativeError(problem, expected), Tolerance(problem.spec.dtype));
    for (size_t i = 0; i < problem.log_sum_exp.size(); ++i) {
      ASSERT_TRUE(IsNear(problem.log_sum_exp[i], log_sum_exp[i], 4e-6))
          << "row " << i << ": " << problem.log_sum_exp[i] << " for " << log_sum_exp[i];
    }
  }

  template <typename T>
  T OneOf(const std::vector<T>& choices) {
    return choices[random_() % choices.size()];
  }

  Spec RandomSpec(int round) {
    const int64_t group = OneOf<int64_t>({1, 2, 4, 8});
    const int64_t dim = OneOf<int64_t>({64, 96, 128, 80, 33, 100, 7, 1});
    const int64_t value_dim = UpTo(3) == 1 ? UpTo(130) : dim;
    Spec spec = WithLogSumExp(MakeSpec(kFloatTypes[round % 3], Vanilla{.causal = UpTo(2) == 1},
                                       group * UpTo(3), dim, value_dim));
    spec.kv_heads = spec.heads / group;
    spec.value_is_key_prefix = value_dim <= dim && UpTo(3) == 1;
    return spec;
  }

  int32_t RandomKeys() {
    return UpTo(3) == 1 ? 256 + UpTo(2200)
                        : OneOf<int32_t>({256, 257, 287, 288, 289, 1023, 1024, 1025, 1055, 1056,
                                          1057, 2047, 2048, 2049, 3073});
  }

 private:
  const int threads_ = ParallelWorkers();
};

TEST_P(FewRowsTest, MatchesTheReference) {
  for (int round = 0; round < Scaled(36); ++round) {
    const Spec spec = RandomSpec(round);
    const Gaps gaps = {UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1};
    OwnedProblem problem(spec, {UpTo(4)}, {RandomKeys()}, gaps);
    ASSERT_TRUE(HasFewRows(spec, problem.cu_seqlens_q[1], problem.cu_seqlens_k[1]));
    problem.Randomize(random_, UpTo(4));
    SCOPED_TRACE(testing::Message() << "round " << round);
    ExpectRight(problem);
  }
}

// Windows, positions, biases of keys and softcaps; in some rounds biases by place, which have
// tiles.
TEST_P(FewRowsTest, ScoresFollowTheirPlaces) {
  for (int round = 0; round < Scaled(48); ++round) {
    Spec spec = RandomSpec(round);
    const RandomScores scores(spec, random_);
    if (round % 6 > 0) spec.bias = {};
    OwnedProblem problem(spec, {UpTo(4), UpTo(4)}, {RandomKeys(), RandomKeys()});
    problem.Randomize(random_);
    SCOPED_TRACE(testing::Message() << "round " << round);
    ExpectRight(problem);
  }
}

TEST_P(FewRowsTest, EachNumberOfRowsAndHeads) {
  for (int rows = 1; rows <= 4; ++rows) {
    for (const int64_t group : {1, 3, 8}) {
      Spec spec = MakeSpec(kFloatTypes[(rows + group) % 3], Vanilla{}, 2 * group, 40, 40);
      spec.kv_heads = 2;
      OwnedProblem problem(spec, {rows}, {1100});
      problem.Randomize(random_);
      ExpectRight(problem);
    }
  }
}

// Queries before all keys, under a mask, and far behind a window: rows of zeros, next to others.
TEST_P(FewRowsTest, RowsThatSeeNoKeyAreZero) {
  for (const bool behind : {false, true}) {
    Spec spec = WithLogSumExp(MakeSpec(DType::kFloat32, Vanilla{.causal = true}, 4, 16, 16));
    spec.kv_heads = 2;
    spec.placed = true;
    if (behind) spec.window.left = 3;
    OwnedProblem problem(spec, {4, 2}, {2100, 2100});
    problem.Randomize(random_);
    problem.places[0] = {.shift = behind ? 2101 : -2};
    problem.places[1] = {.shift = behind ? 5000 : -50};
    ExpectRight(problem);
    const auto unseen = std::count(problem.log_sum_exp.begin(), problem.log_sum_exp.end(),
                                   -std::numeric_limits<float>::infinity());
    EXPECT_EQ(unseen, (behind ? 2 + 2 : 2 + 2) * 4);
  }
}

// The scores of a part far above those of all others, and weights that are exactly zero.
TEST_P(FewRowsTest, SurvivesHugeScoresAndHiddenParts) {
  Spec spec = WithLogSumExp(MakeSpec(DType::kFloat32, Vanilla{}, 2, 8, 8));
  OwnedProblem huge(spec, {3}, {5000});
  huge.Randomize(random_, 1e12, 1e12);
  Run(huge);
  EXPECT_LE(RelativeError(huge, VanillaReference(spec, huge.view)), Tolerance(DType::kFloat32));
  spec.key_bias_heads = 1;
  OwnedProblem hidden(spec, {3}, {5000});
  hidden.Randomize(random_);
  std::fill(hidden.key_bias.begin(), hidden.key_bias.end(), -INFINITY);
  hidden.key_bias[3000] = -1e30F;
  Run(hidden);
  for (int64_t i = 0; i < 3 * 16; ++i) {
    ASSERT_EQ(hidden.Output(i / 16, 0, i % 16), hidden.value.Get(3000 * 16 + i % 16));
  }
}

// Decoders of different lengths, a prompt and a sequence of few keys, with all their options.
TEST_P(FewRowsTest, AloneInAnyBatchAndOnAnyThreadsGivesTheSameBytes) {
  for (int round = 0; round < Scaled(4); ++round) {
    Spec spec = RandomSpec(round);
    const RandomScores scores(spec, random_);
    if (round % 2 > 0) spec.bias = {};
    std::vector<std::unique_ptr<OwnedProblem>> requests;
    std::vector<Problem> batch;
    std::vector<std::vector<std::byte>> alone;
    std::vector<std::vector<float>> logs_alone;
    for (int i = 0; i < 12; ++i) {
      const int32_t keys = i == 0 ? 40 : UpTo(3000);
      requests.push_back(std::make_unique<OwnedProblem>(
          spec, std::vector<int32_t>{i == 1 ? 70 : UpTo(5), 2}, std::vector<int32_t>{keys, 600}));
      OwnedProblem& problem = *requests.back();
      problem.Randomize(random_);
      SetParallelWorkers(1);
      Run(problem);
      alone.push_back(problem.output.bytes());
      logs_alone.push_back(problem.log_sum_exp);
    }
    for (const int threads : {1, 2, 5, 16}) {
      SetParallelWorkers(threads);
      batch.clear();
      for (const auto& request : requests) {
        request->output.Clear();
        std::fill(request->log_sum_exp.begin(), request->log_sum_exp.end(), NAN);
        batch.push_back(request->view);
      }
      std::shuffle(batch.begin(), batch.end(), random_);
      Run(spec, batch);
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_EQ(requests[i]->output.bytes(), alone[i]) << threads << Describe(spec);
        ASSERT_EQ(requests[i]->log_sum_exp, logs_alone[i]) << threads << Describe(spec);
      }
    }
  }
}

TEST_P(FewRowsTest, SharedHeadsGetTheBytesOfRepeatedKeysAndValues) {
  for (int round = 0; round < Scaled(15); ++round) {
    Spec spec = RandomSpec(round);
    spec.heads = 12;
    spec.kv_heads = OneOf<int64_t>({1, 2, 3, 4, 6, 12});
    Spec each = spec;
    each.kv_heads = spec.heads;
    each.value_is_key_prefix = false;
    const int32_t rows = UpTo(4);
    const int32_t keys = RandomKeys();
    OwnedProblem shared(spec, {rows}, {keys}, {1, 2, 3, 4});
    OwnedProblem repeated(each, {rows}, {keys});
    shared.Randomize(random_);
    RepeatHeads(shared, repeated);
    Run(shared);
    Run(repeated);
    SCOPED_TRACE(Describe(spec));
    EXPECT_EQ(shared.log_sum_exp, repeated.log_sum_exp);
    for (int64_t i = 0; i < rows * 12 * spec.value_dim; ++i) {
      const int64_t row = 12 * spec.value_dim;
      ASSERT_EQ(shared.Output(i / row, 0, i % row), repeated.Output(i / row, 0, i % row)) << i;
    }
  }
}

TEST_P(FewRowsTest, NotANumberShowsInItsSequenceAlone) {
  for (const int which : {0, 1, 2}) {
    Spec spec = WithLogSumExp(MakeSpec(DType::kBFloat16, Vanilla{}, 2, 64, 64));
    OwnedProblem problem(spec, {3, 3, 3}, {1500, 1500, 1500});
    problem.Randomize(random_);
    OwnedProblem clean(spec, {3, 3, 3}, {1500, 1500, 1500});
    for (int64_t s = 0; s < 3; ++s) CopySequence(problem, s, clean, s);
    Elements* const tensors[] = {&problem.query, &problem.key, &problem.value};
    const int64_t first = which == 0 ? 3 : 1500 + 1200;
    for (int64_t e = 0; e < 128; ++e) tensors[which]->Set(first * 128 + e, NAN);
    Run(problem);
    Run(clean);
    for (int64_t i = 0; i < 9 * 128; ++i) {
      const double output = problem.Output(i / 128, 0, i % 128);
      if (i / 128 >= 3 && i / 128 < 6) {
        const bool poisoned = which > 0 || i / 128 == 3;
        ASSERT_EQ(std::isnan(output), poisoned) << which << " " << i;
      } else {
        ASSERT_EQ(output, clean.Output(i / 128, 0, i % 128)) << which << " " << i;
      }
    }
  }
}

// Others have tiles: fewer keys than are worth dividing, more rows, long rows, or biases by place.
TEST_P(FewRowsTest, TheChoiceFollowsFromTheSequenceAndNotFromItsSharedHeads) {
  Spec spec = MakeSpec(DType::kFloat32, Vanilla{}, 128, 576, 512);
  EXPECT_FALSE(HasFewRows(spec, 0, 1000));
  EXPECT_FALSE(HasFewRows(spec, 1, 255));
  EXPECT_FALSE(HasFewRows(MakeSpec(DType::kFloat32, Vanilla{}, 2, 64, 64), 5, 1000));
  for (const int64_t kv_heads : {1, 2, 128}) {
    spec.kv_heads = kv_heads;
    EXPECT_TRUE(HasFewRows(spec, 1, 256));
    EXPECT_FALSE(HasFewRows(spec, 2, 256));
  }
  const std::vector<float> slopes(128, 0.5F);
  spec.bias.slopes = slopes.data();
  EXPECT_FALSE(HasFewRows(spec, 1, 256));
}

INSTANTIATE_TEST_SUITE_P(Table, FewRowsTest, testing::ValuesIn(CpuRows({KernelName::kVanilla})),
                         NameOfRow);

}  // namespace
}  // namespace castor::attention

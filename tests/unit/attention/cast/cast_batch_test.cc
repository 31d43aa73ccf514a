// What must not change CAST's results on the CPU: the batch, the threads, and repetition. Also the
// size of its workspace.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "engine/attention/cast/cast_layout.h"
#include "engine/attention/parallel.h"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"

namespace castor::attention {
namespace {

// The length of a sequence with enough tiles for several threads.
constexpr int32_t kLong = kSanitized ? 200 : 900;

Spec SpecOf(DType dtype, int reading, int32_t cluster_size, int64_t surrogates) {
  return MakeSpec(dtype, CastReading(reading, cluster_size), 3, 32, 40, surrogates);
}

class CastBatchTest : public VariantTest {
 protected:
  // The output bytes, after filling them with something else first.
  static std::vector<std::byte> BytesOf(OwnedProblem& problem) {
    problem.output.Clear();
    Run(problem);
    return problem.output.bytes();
  }
};

TEST_P(CastBatchTest, AloneAndInAnyBatchGiveTheSameBytes) {
  for (int reading = 0; reading < kCastReadings; ++reading) {
    const Spec spec = SpecOf(kFloatTypes[reading % 3], reading, 0, 5);
    std::vector<std::unique_ptr<CastProblem>> owned;
    std::vector<OwnedProblem*> problems;
    constexpr int kLongest = kSanitized ? 150 : 600;
    for (int i = 0; i < 4; ++i) {
      owned.push_back(
          std::make_unique<CastProblem>(spec, std::vector<int32_t>{UpTo(kLongest), 3}, random_));
      problems.push_back(&owned.back()->problem);
    }
    ExpectTheSameAloneAndTogether(problems);
  }
}

// A sequence in a ragged problem gives the same rows as a problem of its own.
TEST_P(CastBatchTest, NeighboursInAProblemDoNotMatter) {
  const Spec spec = SpecOf(DType::kFloat32, 1, 0, 5);
  const std::vector<int32_t> lengths = {1, 200, 33, 96, 2, 500};
  CastProblem all(spec, lengths, random_);
  Run(all.problem);
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t begin = all.problem.cu_seqlens_q[s];
    CastProblem one(spec, {lengths[s]}, random_);
    one.surrogates = all.surrogates;
    one.problem.view.cast.surrogates = one.surrogates.data();
    std::copy_n(all.gate.begin() + begin, lengths[s], one.gate.begin());
    CopySequence(all.problem, static_cast<int64_t>(s), one.problem, 0);
    EXPECT_EQ(BytesOf(one.problem), OutputOf(all.problem, static_cast<int64_t>(s)))
        << "sequence " << s;
  }
}

TEST_P(CastBatchTest, RepetitionGivesTheSameBytes) {
  for (const int reading : {0, 1}) {
    CastProblem layer(SpecOf(DType::kFloat32, reading, 0, 9), {kLong, 20}, random_);
    const std::vector<std::byte> first = BytesOf(layer.problem);
    for (int round = 1; round < Scaled(100); ++round) {
      ASSERT_EQ(BytesOf(layer.problem), first) << "round " << round;
    }
  }
}

TEST_P(CastBatchTest, AnyNumberOfThreadsGivesTheSameBytes) {
  const int before = ParallelWorkers();
  for (int reading = 0; reading < kCastReadings; ++reading) {
    CastProblem layer(SpecOf(DType::kFloat32, reading, 0, 9), {kLong, 20, 1}, random_);
    SetParallelWorkers(1);
    const std::vector<std::byte> first = BytesOf(layer.problem);
    for (const int threads : {2, 3, 7}) {
      SetParallelWorkers(threads);
      EXPECT_EQ(BytesOf(layer.problem), first) << threads << " threads, reading " << reading;
    }
  }
  SetParallelWorkers(before);
}

// More members than the workspace has rows for, so tokens are combined in several parts. A column
// of the values does not depend on the other columns, so it must not change.
TEST_P(CastBatchTest, MembersMayBeTooManyForTheMemory) {
  for (const int32_t size : {150, 1000}) {
    // Or it takes a minute.
    if (kSanitized && (size != 150 || GetParam().backend == "cpu-portable")) continue;
    constexpr int32_t kTokens = 220;
    Spec wide = SpecOf(DType::kFloat32, 0, size, 40);
    wide.heads = wide.kv_heads = 1;
    wide.value_dim = 800;
    Spec narrow = wide;
    narrow.value_dim = 16;
    CastLayout layout(wide);
    ASSERT_TRUE(layout.Add(kTokens));
    ASSERT_LT(layout.rows(), CastLayout::Slots(wide, kTokens));

    std::mt19937 same = random_;
    CastProblem all(wide, {kTokens}, random_);
    CastProblem some(narrow, {kTokens}, same);  // the same queries and keys
    some.surrogates = all.surrogates;
    some.problem.view.cast.surrogates = some.surrogates.data();
    std::copy(all.gate.begin(), all.gate.end(), some.gate.begin());
    for (int64_t i = 0; i < some.problem.value.size(); ++i) {
      some.problem.value.Set(i, all.problem.value.Get(i / 16 * 800 + i % 16));
    }
    Run(all.problem);
    Run(some.problem);
    for (int64_t i = 0; i < some.problem.output.size(); ++i) {
      ASSERT_EQ(some.problem.output.Get(i), all.problem.Output(i / 16, 0, i % 16)) << i;
    }
    if (size > kTokens) {
      EXPECT_LE(RelativeError(all.problem, VanillaOfTheSame(all.problem)), 1e-5);
    }
  }
}

TEST_P(CastBatchTest, WorkspaceGrowsWithTheSequenceAndNotWithTheBatch) {
  const auto bytes = [](const Spec& spec, const std::vector<int32_t>& offsets) {
    return GetParam().workspace_bytes(spec, offsets, offsets);
  };
  const Spec spec = SpecOf(DType::kFloat32, 0, 256, 64);
  const int64_t lone = bytes(spec, {0, 16384});
  EXPECT_GT(lone, 16384 * 64 * 4) << "the affinities alone";
  EXPECT_LT(lone, 64 << 20);
  std::vector<int32_t> many = {0};
  for (int i = 0; i < 1000; ++i) many.push_back(many.back() + 512);
  EXPECT_LT(bytes(spec, many), 64 << 20);
  // All tokens in all clusters: the rows are bounded, the lists of members are not.
  EXPECT_LT(bytes(SpecOf(DType::kFloat32, 0, 16384, 64), {0, 16384}), 64 << 20);
}

INSTANTIATE_TEST_SUITE_P(Table, CastBatchTest, testing::ValuesIn(CpuRows({KernelName::kCast})),
                         NameOfRow);

}  // namespace
}  // namespace castor::attention

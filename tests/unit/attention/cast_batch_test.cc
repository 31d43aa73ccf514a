// What must not change the results of CAST on the CPU: the batch, the threads, the repetition. And
// what its memory comes to.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "engine/attention/cast_layout.h"
#include "engine/attention/variants.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/attention/cast_problem.h"

namespace castor::attention {
namespace {

// Tokens of a sequence with tiles enough for several threads.
constexpr int32_t kLong = kSanitized ? 200 : 900;

Spec MakeSpec(DType dtype, int reading, int32_t cluster_size, int64_t surrogates) {
  Cast kernel;
  kernel.cluster_size = cluster_size;
  if ((reading & 1) != 0) kernel.clustering = Cast::Clustering::kSingleAssignmentTopK;
  if ((reading & 2) != 0) kernel.head_clustering = Cast::HeadClustering::kPerHead;
  if ((reading & 4) != 0) kernel.attention_function = Cast::AttentionFunction::kLaplace;
  Spec spec;
  spec.dtype = dtype;
  spec.surrogates = surrogates;
  spec.heads = 3;
  spec.head_dim = 32;
  spec.value_dim = 40;
  spec.softmax_scale = 1 / std::sqrt(32.0);
  spec.kernel = kernel;
  return spec;
}

class CastBatchTest : public testing::TestWithParam<Variant> {
 protected:
  CastBatchTest() : seed_(FreshSeed()), random_(seed_), trace_(__FILE__, __LINE__, seed_) {}

  void SetUp() override {
    if (!GetParam().supports(MakeSpec(DType::kFloat32, 0, 0, 4))) {
      GTEST_SKIP() << "this processor cannot run " << GetParam().backend;
    }
  }

  // Output bytes, which hold something else before.
  static std::vector<std::byte> Run(OwnedProblem& problem) {
    std::memset(problem.output.data(), 0xff, problem.output.bytes().size());
    const absl::Status status = GetParam().run(problem.spec, {&problem.view, 1});
    EXPECT_TRUE(status.ok()) << status;
    return problem.output.bytes();
  }

  const uint32_t seed_;
  std::mt19937 random_;
  testing::ScopedTrace trace_;
};

TEST_P(CastBatchTest, AloneAndInAnyBatchGiveTheSameBytes) {
  for (int reading = 0; reading < 8; ++reading) {
    const DType dtype = std::array{DType::kFloat32, DType::kFloat16, DType::kBFloat16}[reading % 3];
    const Spec spec = MakeSpec(dtype, reading, 0, 5);
    std::vector<std::unique_ptr<CastProblem>> owned;
    std::vector<Problem> batch;
    std::vector<std::vector<std::byte>> alone;
    constexpr int kLongest = kSanitized ? 150 : 600;
    for (int i = 0; i < 8; ++i) {
      const auto length = static_cast<int32_t>(random_() % kLongest + 1);
      owned.push_back(
          std::make_unique<CastProblem>(spec, std::vector<int32_t>{length, 3}, random_));
      batch.push_back(owned.back()->problem.view);
      alone.push_back(Run(owned.back()->problem));
    }
    std::shuffle(batch.begin(), batch.end(), random_);
    for (auto& layer : owned) {
      std::memset(layer->problem.output.data(), 0xff, layer->problem.output.bytes().size());
    }
    ASSERT_TRUE(GetParam().run(spec, batch).ok());
    for (size_t i = 0; i < owned.size(); ++i) {
      EXPECT_EQ(owned[i]->problem.output.bytes(), alone[i]) << "reading " << reading;
    }
  }
}

// A sequence of a ragged problem against the same one as a problem of its own.
TEST_P(CastBatchTest, NeighboursInAProblemDoNotMatter) {
  const Spec spec = MakeSpec(DType::kFloat32, 1, 0, 5);
  const std::vector<int32_t> lengths = {1, 200, 33, 96, 2, 500};
  CastProblem all(spec, lengths, random_);
  const std::vector<std::byte> together = Run(all.problem);
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t begin = all.problem.cu_seqlens_q[s];
    CastProblem one(spec, {lengths[s]}, random_);
    one.surrogates = all.surrogates;
    one.problem.view.cast.surrogates = one.surrogates.data();
    for (int64_t i = 0; i < lengths[s]; ++i) one.gate[i] = all.gate[begin + i];
    for (int64_t i = 0; i < one.problem.query.size(); ++i) {
      one.problem.query.Set(i, all.problem.query.Get(begin * 96 + i));
      one.problem.key.Set(i, all.problem.key.Get(begin * 96 + i));
    }
    for (int64_t i = 0; i < one.problem.value.size(); ++i) {
      one.problem.value.Set(i, all.problem.value.Get(begin * 120 + i));
    }
    const std::vector<std::byte> alone = Run(one.problem);
    EXPECT_EQ(
        0, std::memcmp(alone.data(), together.data() + begin * 120 * sizeof(float), alone.size()))
        << "sequence " << s;
  }
}

TEST_P(CastBatchTest, RepetitionGivesTheSameBytes) {
  for (const int reading : {0, 1}) {
    CastProblem layer(MakeSpec(DType::kFloat32, reading, 0, 9), {kLong, 20}, random_);
    const std::vector<std::byte> first = Run(layer.problem);
    for (int round = 1; round < Scaled(100); ++round) {
      ASSERT_EQ(Run(layer.problem), first) << "round " << round;
    }
  }
}

TEST_P(CastBatchTest, AnyNumberOfThreadsGivesTheSameBytes) {
  const int before = at::get_num_threads();
  for (int reading = 0; reading < 8; ++reading) {
    CastProblem layer(MakeSpec(DType::kFloat32, reading, 0, 9), {kLong, 20, 1}, random_);
    at::set_num_threads(1);
    const std::vector<std::byte> first = Run(layer.problem);
    for (const int threads : {2, 3, 7}) {
      at::set_num_threads(threads);
      EXPECT_EQ(Run(layer.problem), first) << threads << " threads, reading " << reading;
    }
  }
  at::set_num_threads(before);
}

// More members than there are rows for them: tokens are combined some at a time. A column of the
// values must not notice, whose result does not depend on the other columns.
TEST_P(CastBatchTest, MembersMayBeTooManyForTheMemory) {
  for (const int32_t size : {150, 1000}) {
    constexpr int32_t kTokens = 220;
    Spec wide = MakeSpec(DType::kFloat32, 0, size, 40);
    wide.heads = 1;
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
      EXPECT_LE(RelativeError(all.problem, all.VanillaOfTheSame()), 1e-5);
    }
  }
}

TEST_P(CastBatchTest, WorkspaceGrowsWithTheSequenceAndNotWithTheBatch) {
  const auto bytes = [](const Spec& spec, const std::vector<int32_t>& offsets) {
    return GetParam().workspace_bytes(spec, offsets, offsets);
  };
  const Spec spec = MakeSpec(DType::kFloat32, 0, 256, 64);
  const int64_t lone = bytes(spec, {0, 16384});
  EXPECT_GT(lone, 16384 * 64 * 4) << "the affinities alone";
  EXPECT_LT(lone, 64 << 20);
  std::vector<int32_t> many = {0};
  for (int i = 0; i < 1000; ++i) many.push_back(many.back() + 512);
  EXPECT_LT(bytes(spec, many), 64 << 20);
  // All tokens in all clusters: rows are bounded, lists of members are not.
  EXPECT_LT(bytes(MakeSpec(DType::kFloat32, 0, 16384, 64), {0, 16384}), 64 << 20);
}

INSTANTIATE_TEST_SUITE_P(Table, CastBatchTest, testing::ValuesIn([] {
                           std::vector<Variant> rows;
                           for (const Variant& row : CpuVariants()) {
                             if (row.kernel == KernelName::kCast) rows.push_back(row);
                           }
                           return rows;
                         }()),
                         [](const auto& info) {
                           std::string name(info.param.backend);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace castor::attention

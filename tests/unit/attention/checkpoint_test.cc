// Runs of the CPU's kernels that are interrupted at checkpoints: by other runs on the same thread,
// where neither may disturb the other, and by an error that ends them.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/attention/parallel.h"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/checkpoints.h"
#include "tests/support/sanitizer.h"

namespace castor::attention {
namespace {

// A problem for a row of the table, and its undisturbed result.
struct Work {
  Work(const Variant& row, const Spec& spec, const std::vector<int32_t>& lengths,
       std::mt19937& random)
      : row(row), spec(spec) {
    if (row.kernel == KernelName::kCast) {
      cast = std::make_unique<CastProblem>(spec, lengths, random);
    } else {
      plain = std::make_unique<OwnedProblem>(spec, lengths, lengths);
      plain->Randomize(random);
    }
    EXPECT_TRUE(Run(RunToEnd()).ok());
    expected = problem().output.bytes();
  }

  OwnedProblem& problem() { return plain != nullptr ? *plain : cast->problem; }

  absl::Status Run(RunControl& control) {
    problem().output.Clear();
    return row.run(spec, {&problem().view, 1}, control);
  }

  bool IsRight() { return problem().output.bytes() == expected; }

  Variant row;
  Spec spec;
  std::unique_ptr<OwnedProblem> plain;
  std::unique_ptr<CastProblem> cast;
  std::vector<std::byte> expected;
};

// Kernels that together take every path through the stages.
std::vector<Kernel> KernelsOf(KernelName name, uint64_t seed) {
  using Clustering = Cast::Clustering;
  switch (name) {
    case KernelName::kVanilla:
      return {Vanilla{}, Vanilla{.causal = true}};
    case KernelName::kClustered:
      return {PlainClusters(70, seed)};
    case KernelName::kImprovedClustered:
      return {ImprovedClusters(40, 24, seed)};
    case KernelName::kCast: {
      Cast per_head = CastOf(300, Clustering::kSingleAssignmentTopK);
      per_head.head_clustering = Cast::HeadClustering::kPerHead;
      return {CastOf(400), CastOf(300, Clustering::kSingleAssignmentTopK), per_head};
    }
  }
  return {};
}

class CheckpointTest : public VariantTest {
 protected:
  ~CheckpointTest() override { SetParallelWorkers(threads_); }

  static bool RunsHere(const Variant& row, const Kernel& kernel) {
    return row.supports(MakeSpec(DType::kFloat32, kernel, 1, 1, 1, 1));
  }

  // Large enough for checkpoints within every stage.
  std::vector<std::unique_ptr<Work>> LargeWork() {
    std::vector<std::unique_ptr<Work>> works;
    for (const Kernel& kernel : KernelsOf(GetParam().kernel, random_())) {
      for (const std::vector<int32_t>& lengths :
           std::vector<std::vector<int32_t>>{{900}, {kSanitized ? 550 : 850, 1, 130}}) {
        if (kSanitized && lengths.size() == 1) continue;  // or portable rows take a minute
        const DType dtype = works.size() % 2 == 0 ? DType::kFloat32 : DType::kBFloat16;
        works.push_back(std::make_unique<Work>(
            GetParam(), MakeSpec(dtype, kernel, /*heads=*/works.size() % 3 == 0 ? 1 : 3, 40, 24, 4),
            lengths, random_));
      }
    }
    return works;
  }

  // A small problem for each row of the table.
  std::vector<std::unique_ptr<Work>> SmallWork() {
    std::vector<std::unique_ptr<Work>> works;
    for (const Variant& row : CpuVariants()) {
      const Kernel kernel = KernelsOf(row.kernel, random_()).back();
      if (!RunsHere(row, kernel)) continue;
      const Spec spec = MakeSpec(DType::kFloat32, kernel, 2, 8, 8, /*surrogates=*/2);
      works.push_back(std::make_unique<Work>(row, spec, std::vector<int32_t>{30, 3}, random_));
    }
    return works;
  }

  const int threads_ = ParallelWorkers();
};

TEST_P(CheckpointTest, OtherRunsAtCheckpointsChangeNoBytes) {
  const std::vector<std::unique_ptr<Work>> small = SmallWork();
  ASSERT_GE(small.size(), 4u);
  for (const int threads : {1, 2, 3}) {
    if (kSanitized && threads != 2) continue;
    SetParallelWorkers(threads);
    for (const auto& large : LargeWork()) {
      SCOPED_TRACE(Describe(large->spec) + ", " + std::to_string(threads) + " threads");
      AtEvery control([&] {
        Work& other = *small[random_() % small.size()];
        EXPECT_TRUE(other.Run(RunToEnd()).ok());
        EXPECT_TRUE(other.IsRight()) << Describe(other.spec);
        return absl::OkStatus();
      });
      ASSERT_TRUE(large->Run(control).ok());
      EXPECT_TRUE(large->IsRight());
      // The number depends on how tasks are distributed if there are more threads.
      EXPECT_GE(control.count(), threads == 1 ? 3 : 1) << "it was hardly interrupted";
      EXPECT_EQ(ParallelWorkers(), threads);
    }
  }
}

// Ends the run at each checkpoint in turn.
TEST_P(CheckpointTest, ARunThatIsEndedSaysWhyAndLeavesNothingBehind) {
  SetParallelWorkers(2);
  for (const auto& work : LargeWork()) {
    SCOPED_TRACE(Describe(work->spec));
    bool ended = true;
    for (int last = 1; ended; last += 1 + (kSanitized ? 3 * last : last / 4)) {
      int left = last;
      AtEvery control(
          [&] { return --left > 0 ? absl::OkStatus() : absl::AbortedError("abandoned"); });
      const absl::Status status = work->Run(control);
      ended = !status.ok();
      EXPECT_EQ(status, ended ? absl::AbortedError("abandoned") : absl::OkStatus());
      EXPECT_EQ(control.count() == last, ended) << "it went on, or ended by itself";
    }
    ASSERT_TRUE(work->Run(RunToEnd()).ok());
    EXPECT_TRUE(work->IsRight());
  }
}

std::vector<Variant> AllRows() {
  return CpuRows({KernelName::kVanilla, KernelName::kClustered, KernelName::kImprovedClustered,
                  KernelName::kCast});
}

INSTANTIATE_TEST_SUITE_P(Rows, CheckpointTest, testing::ValuesIn(AllRows()), NameOfRow);

}  // namespace
}  // namespace castor::attention

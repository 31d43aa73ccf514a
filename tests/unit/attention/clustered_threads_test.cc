// Clustered and improved clustered attention on the CPU give the same bytes every time and on any
// number of threads, however the work is shared out among them.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/attention/variants.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/attention/clustered_problem.h"

namespace castor::attention {
namespace {

// The best row of each kernel; others differ in their vectors, not in how work is cut.
class ClusteredThreadsTest : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override { threads_ = at::get_num_threads(); }
  void TearDown() override { at::set_num_threads(threads_); }

  static Spec MakeSpec(int64_t heads) {
    return ClusteredSpec(DType::kFloat32, GetParam(), heads, 32, 32);
  }

  static std::vector<std::byte> Run(OwnedProblem& problem) {
    std::memset(problem.output.data(), 0xff, problem.output.bytes().size());
    const Variant* row = FindVariant(CpuVariants(), problem.spec);
    EXPECT_TRUE(row->run(problem.spec, {&problem.view, 1}).ok());
    return problem.output.bytes();
  }

 private:
  int threads_ = 1;
};

TEST_P(ClusteredThreadsTest, AHundredRunsGiveTheSameBytes) {
  const uint32_t seed = FreshSeed();
  std::mt19937 random(seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  OwnedProblem problem(MakeSpec(4), {500, 3, 700}, {500, 3, 1500});
  problem.Randomize(random);
  const std::vector<std::byte> first = Run(problem);
  for (int i = 0; i < Scaled(100); ++i) ASSERT_EQ(Run(problem), first);
}

// One head and one sequence: fewer heads than threads, so clusters are shared out and the passes
// over the codes too. Many: a head per thread.
TEST_P(ClusteredThreadsTest, AnyNumberOfThreadsGivesTheSameBytes) {
  const uint32_t seed = FreshSeed();
  std::mt19937 random(seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (const auto& lengths : {std::vector<int32_t>{kSanitized ? 2000 : 9000},
                              std::vector<int32_t>{1200, 5, 300, 1, 800}}) {
    for (const int64_t heads : {1, 3}) {
      OwnedProblem problem(MakeSpec(heads), lengths, lengths);
      problem.Randomize(random);
      at::set_num_threads(1);
      const std::vector<std::byte> alone = Run(problem);
      for (const int threads : {2, 3, 4, 16}) {
        at::set_num_threads(threads);
        ASSERT_EQ(Run(problem), alone) << threads << " threads, " << heads << " heads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ClusteredThreadsTest,
                         testing::Values(Kernel(PlainClusters(60, 5)),
                                         Kernel(ImprovedClusters(60, 20, 5))),
                         [](const auto& info) { return std::string(NameOf(NameOf(info.param))); });

}  // namespace
}  // namespace castor::attention

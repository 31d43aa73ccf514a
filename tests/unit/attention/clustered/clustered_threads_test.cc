// Clustered and improved clustered attention on the CPU give the same bytes every time and with any
// number of threads, however the work is divided; and they allocate no memory that they do not use.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "engine/attention/clustered/clustering.h"
#include "engine/attention/parallel.h"
#include "engine/attention/variants.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"

namespace {

// Total bytes that this program has requested from the heap, except aligned allocations.
std::atomic<size_t> allocated_bytes = 0;

}  // namespace

// Sanitizers have their own allocator.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
// Not inlined, or GCC would report malloc and free inside as mismatched with new and delete.
[[gnu::noinline]] void* operator new(size_t size) {
  allocated_bytes += size;
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace castor::attention {
namespace {

// The best row of each kernel; the others use other vectors but divide the work alike.
class ClusteredThreadsTest : public testing::TestWithParam<Kernel>, protected Seeded {
 protected:
  void SetUp() override { threads_ = ParallelWorkers(); }
  void TearDown() override { SetParallelWorkers(threads_); }

  static Spec SpecOf(int64_t heads) { return MakeSpec(DType::kFloat32, GetParam(), heads, 32, 32); }

  static std::vector<std::byte> Run(OwnedProblem& problem) {
    problem.output.Clear();
    const Variant* row = FindVariant(CpuVariants(), problem.spec);
    EXPECT_TRUE(row->run(problem.spec, {&problem.view, 1}, RunToEnd()).ok());
    return problem.output.bytes();
  }

 private:
  int threads_ = 1;
};

TEST_P(ClusteredThreadsTest, AHundredRunsGiveTheSameBytes) {
  OwnedProblem problem(SpecOf(4), {500, 3, 700}, {500, 3, 1500});
  problem.Randomize(random_);
  const std::vector<std::byte> first = Run(problem);
  for (int i = 0; i < Scaled(100); ++i) ASSERT_EQ(Run(problem), first);
}

// One sequence: fewer heads than threads, so clusters and the passes over the codes are divided
// among threads. Many sequences: one thread per head.
TEST_P(ClusteredThreadsTest, AnyNumberOfThreadsGivesTheSameBytes) {
  for (const auto& lengths : {std::vector<int32_t>{kSanitized ? 2000 : 9000},
                              std::vector<int32_t>{1200, 5, 300, 1, 800}}) {
    for (const int64_t heads : {1, 3}) {
      OwnedProblem problem(SpecOf(heads), lengths, lengths);
      problem.Randomize(random_);
      SetParallelWorkers(1);
      const std::vector<std::byte> alone = Run(problem);
      for (const int threads : {2, 3, 4, 16}) {
        SetParallelWorkers(threads);
        ASSERT_EQ(Run(problem), alone) << threads << " threads, " << heads << " heads";
      }
    }
  }
}

// With one head the threads share its clustering, so one clusterer is enough.
TEST_P(ClusteredThreadsTest, OneHeadTakesOneClusterer) {
  if (kSanitized) GTEST_SKIP() << "nobody counts what a sanitizer's allocator gives";
  constexpr int32_t kTokens = 1 << 16;
  OwnedProblem problem(SpecOf(1), {kTokens}, {64});
  problem.Randomize(random_);
  SetParallelWorkers(16);
  Run(problem);
  const size_t before = allocated_bytes;
  Run(problem);
  const auto clusterer =
      static_cast<size_t>(CodeClusterer::Bytes(ClusteringOf(problem.spec), kTokens).value());
  // Besides the clusterer: codes and order, the output that Run returns, and lists of tasks.
  const size_t others = kTokens * (8 + 4 + 32 * sizeof(float)) + (1 << 20);
  EXPECT_LT(allocated_bytes - before, others + 2 * clusterer);
}

INSTANTIATE_TEST_SUITE_P(Kernels, ClusteredThreadsTest,
                         testing::Values(Kernel(PlainClusters(60, 5)),
                                         Kernel(ImprovedClusters(60, 20, 5))),
                         [](const auto& info) { return std::string(NameOf(NameOf(info.param))); });

}  // namespace
}  // namespace castor::attention

// The emulator itself: mistakes must be noticed. That it does what CUDA specifies, the kernels' own
// tests show.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "tests/support/seeded.h"

namespace castor::kernels::cuda {
namespace {

class CudaEmulatorTest : public testing::Test {
 protected:
  CudaEmulatorTest() : trace_("", 0, seed_) { cuda_emulator::SetSchedule(seed_); }

  const uint32_t seed_ = TestSeed();
  testing::ScopedTrace trace_;
};

__global__ void ReverseKernel(const int* in, int* out, bool synchronised) {
  int* const shared = DynamicShared<int>();
  const int i = static_cast<int>(threadIdx.x);
  shared[i] = in[blockIdx.x * blockDim.x + i];
  if (synchronised) __syncthreads();
  out[blockIdx.x * blockDim.x + i] = shared[blockDim.x - 1 - i];
}

TEST_F(CudaEmulatorTest, ABarrierOrdersABlock) {
  std::vector<int> in(3 * 256);
  std::iota(in.begin(), in.end(), 0);
  std::vector<int> out(in.size());
  std::vector<int> expected = in;
  for (int b = 0; b < 3; ++b) {
    std::reverse(expected.begin() + b * 256, expected.begin() + (b + 1) * 256);
  }
  const LaunchShape shape{3, 256, 1024};
  ASSERT_EQ(Launch(ReverseKernel, shape, nullptr, in.data(), out.data(), true), cudaSuccess);
  EXPECT_EQ(out, expected);
  ASSERT_EQ(Launch(ReverseKernel, shape, nullptr, in.data(), out.data(), false), cudaSuccess);
  EXPECT_NE(out, expected) << "a missing barrier must show";
}

__global__ void CopyKernel(const int* in, int* out, bool wait) {
  int* const shared = DynamicShared<int>();
  CopyAsync16(shared, in);
  CommitCopies();
  CopyAsync16(shared + 4, in + 4);
  CommitCopies();
  if (wait) WaitCopies<1>();
  for (int i = 0; i < 4; ++i) out[i] = shared[i];
  if (wait) WaitCopies<0>();
  for (int i = 4; i < 8; ++i) out[i] = shared[i];
}

TEST_F(CudaEmulatorTest, CopiesArriveWhenWaitedFor) {
  const std::vector<int> in = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<int> out(8);
  alignas(16) int aligned[8];
  std::copy(in.begin(), in.end(), aligned);
  ASSERT_EQ(Launch(CopyKernel, {1, 1, 64}, nullptr, aligned, out.data(), true), cudaSuccess);
  EXPECT_EQ(out, in);
  ASSERT_EQ(Launch(CopyKernel, {1, 1, 64}, nullptr, aligned, out.data(), false), cudaSuccess);
  EXPECT_EQ(out, std::vector<int>(8, -1)) << "data must not be there before the wait";
}

__global__ void StuckKernel() {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

TEST_F(CudaEmulatorTest, WrongKernelsEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)Launch(StuckKernel, {1, 32}, nullptr), "wait for each other forever");
}

TEST_F(CudaEmulatorTest, WrongShapesAreRefused) {
  EXPECT_NE(Launch(StuckKernel, {1, 1025}, nullptr), cudaSuccess);
  EXPECT_NE(Launch(StuckKernel, {dim3(1, 65536), 32}, nullptr), cudaSuccess);
  EXPECT_NE(Launch(StuckKernel, {1, 32, 300 * 1024}, nullptr), cudaSuccess);
  EXPECT_EQ(Launch(StuckKernel, {0, 32}, nullptr), cudaSuccess) << "an empty grid is no launch";
}

}  // namespace
}  // namespace castor::kernels::cuda

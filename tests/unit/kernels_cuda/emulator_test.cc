// The emulator itself: barriers, warps, tensor cores, clusters and copies must do what CUDA
// specifies, and mistakes must be noticed.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "tests/support/seeded.h"

namespace castor::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xffffffff;

class CudaEmulatorTest : public testing::Test {
 protected:
  CudaEmulatorTest() : seed_(TestSeed()), random_(seed_), trace_("", 0, seed_) {
    cuda_emulator::SetSchedule(seed_);
  }

  const uint32_t seed_;
  std::mt19937 random_;
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

__global__ void WarpKernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int* const row = out + threadIdx.x * 8;
  row[0] = __shfl_sync(kAll, lane, 5);
  row[1] = __shfl_xor_sync(kAll, lane, 3);
  row[2] = __shfl_up_sync(kAll, lane, 2);
  row[3] = __shfl_down_sync(kAll, lane, 4, 8);
  row[4] = static_cast<int>(__ballot_sync(kAll, lane % 2));
  row[5] = __reduce_add_sync(kAll, lane);
  row[6] = __syncthreads_count(lane == 0);
  // The two halves of a warp on different paths.
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  if (lane < 16) {
    row[7] = __reduce_max_sync(half, lane);
  } else {
    row[7] = __reduce_max_sync(half, 100 + lane) + __any_sync(half, lane == 20);
  }
}

TEST_F(CudaEmulatorTest, WarpsTalk) {
  std::vector<int> out(64 * 8);
  ASSERT_EQ(Launch(WarpKernel, {1, 64}, nullptr, out.data()), cudaSuccess);
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32;
    const int* const row = out.data() + thread * 8;
    EXPECT_EQ(row[0], 5);
    EXPECT_EQ(row[1], lane ^ 3);
    EXPECT_EQ(row[2], lane < 2 ? lane : lane - 2);
    EXPECT_EQ(row[3], lane % 8 < 4 ? lane + 4 : lane);
    EXPECT_EQ(static_cast<unsigned>(row[4]), 0xaaaaaaaa);
    EXPECT_EQ(row[5], 31 * 16);
    EXPECT_EQ(row[6], 2);
    EXPECT_EQ(row[7], lane < 16 ? 15 : 132);
  }
}

// C[16, 8] = A[16, 16] B[16, 8], with A and B loaded by ldmatrix as in our kernels.
__global__ void ProductKernel(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  auto* const shared_a = DynamicShared<__nv_bfloat16>();  // [16, 16]
  auto* const shared_b = shared_a + 256;                  // [16, 8]
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += 32) shared_a[i] = a[i];
  for (int i = static_cast<int>(threadIdx.x); i < 128; i += 32) shared_b[i] = b[i];
  __syncwarp();
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t left[4];
  LoadMatrices(left, shared_a + lane % 16 * 16 + lane / 16 * 8);
  uint32_t both[4];
  LoadMatricesTransposed(both, shared_b + lane % 16 * 8);
  const uint32_t right[2] = {both[0], both[1]};
  float d[4] = {};
  MmaM16N8K16<__nv_bfloat16>(d, left, right);
  for (int i = 0; i < 4; ++i) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

TEST_F(CudaEmulatorTest, TensorCoresMultiply) {
  std::vector<__nv_bfloat16> a(256);
  std::vector<__nv_bfloat16> b(128);
  const auto draw = [&] { return __float2bfloat16(static_cast<float>(random_() % 17) - 8); };
  std::generate(a.begin(), a.end(), draw);
  std::generate(b.begin(), b.end(), draw);
  std::vector<float> c(128);
  ASSERT_EQ(Launch(ProductKernel, {1, 32, 1024}, nullptr, a.data(), b.data(), c.data()),
            cudaSuccess);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float expected = 0;
      for (int k = 0; k < 16; ++k) {
        expected += __bfloat162float(a[i * 16 + k]) * __bfloat162float(b[k * 8 + j]);
      }
      EXPECT_EQ(c[i * 8 + j], expected);
    }
  }
}

__global__ void ClusterKernel(int* out) {
  int* const shared = DynamicShared<int>();
  shared[threadIdx.x] = static_cast<int>(100 * blockIdx.x + threadIdx.x);
  SyncCluster();
  const unsigned next = (ClusterRank() + 1) % ClusterSize();
  out[blockIdx.x * blockDim.x + threadIdx.x] = MapShared(shared, next)[threadIdx.x];
  SyncCluster();
}

TEST_F(CudaEmulatorTest, ClustersShare) {
  std::vector<int> out(8 * 32);
  ASSERT_EQ(Launch(ClusterKernel, {8, 32, 128, 4}, nullptr, out.data()), cudaSuccess);
  for (int block = 0; block < 8; ++block) {
    for (int thread = 0; thread < 32; ++thread) {
      EXPECT_EQ(out[block * 32 + thread], 100 * (block / 4 * 4 + (block + 1) % 4) + thread);
    }
  }
}

__global__ void CopyKernel(const int* in, int* out, bool wait) {
  int* const shared = DynamicShared<int>();
  CopyAsync16(shared, in);
  CommitCopies();
  CopyAsync16(shared + 4, in + 4, 8);
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
  EXPECT_EQ(out, (std::vector<int>{1, 2, 3, 4, 5, 6, 0, 0}));
  ASSERT_EQ(Launch(CopyKernel, {1, 1, 64}, nullptr, aligned, out.data(), false), cudaSuccess);
  EXPECT_EQ(out, std::vector<int>(8, -1)) << "data that nobody waited for must not be there";
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
  EXPECT_NE(Launch(StuckKernel, {3, 32, 0, 2}, nullptr), cudaSuccess);
  EXPECT_NE(Launch(StuckKernel, {1, 32, 300 * 1024}, nullptr), cudaSuccess);
  EXPECT_EQ(Launch(StuckKernel, {0, 32}, nullptr), cudaSuccess) << "an empty grid is no launch";
}

}  // namespace
}  // namespace castor::kernels::cuda

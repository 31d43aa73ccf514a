// Selection by a block: the k-th largest of some 64-bit keys, and the list of what was selected.
//
// Keys (PairKey) are distinct, so a selection is exact and has no ties left to break: radix select
// from the top, 11 bits a pass over all keys, which stay in place. There is no buffer of candidates
// that could overflow. Counting is by atomics on integers, whose order does not matter.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/cuda/cast/cast_args.cuh"
#include "engine/kernels/cuda/cast/cast_math.cuh"

namespace castor::kernels::cuda {

inline constexpr int kDigitBits = 11;
inline constexpr int kDigits = 1 << kDigitBits;

struct SelectShared {
  int histogram[kDigits];
  int warp_sums[2][32];
  int digit;  // what a pass found
  int above;  // keys above that digit
  int inside;
};

// The sum of x over the threads before this one, and over all; every thread of the block calls it.
// `sums` must not be the previous call's.
__device__ __forceinline__ int SumBefore(int x, int* sums, int* total) {
  const int lane = threadIdx.x % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  int upto = x;
#pragma unroll
  for (int delta = 1; delta < 32; delta *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, upto, delta);
    if (lane >= delta) upto += other;
  }
  if (lane == 31) sums[warp] = upto;
  __syncthreads();
  int before = 0;
  int all = 0;
  for (int w = 0; w < warps; ++w) {
    if (w == warp) before = all;
    all += sums[w];
  }
  *total = all;
  return before + upto - x;
}

// A bound that exactly k of the keys reach: at most the k-th largest, and above the next one.
// key(j), j < count, are distinct; 0 stands for no key. Requires 1 <= k <= the number of keys. All
// threads of the block call it and get the same result. It has a barrier before the first key is
// read.
template <typename Key>
__device__ unsigned long long SelectBound(const Key& key, int count, int k, SelectShared& shared) {
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  unsigned long long prefix = 0;  // the bits found so far
  int shift = 64;
  while (true) {
    const int bits = min(kDigitBits, shift);
    const int low = shift - bits;
    for (int i = thread; i < kDigits; i += threads) shared.histogram[i] = 0;
    __syncthreads();
    for (int j = thread; j < count; j += threads) {
      const unsigned long long x = key(j);
      if (x == 0 || (shift < 64 && x >> shift != prefix)) continue;
      atomicAdd(&shared.histogram[static_cast<int>(x >> low) & ((1 << bits) - 1)], 1);
    }
    __syncthreads();
    // Each thread has a range of digits, the highest first.
    const int share = kDigits / threads;
    int mine = 0;
    for (int i = 0; i < share; ++i) mine += shared.histogram[kDigits - 1 - thread * share - i];
    int total;
    int above = SumBefore(mine, shared.warp_sums[0], &total);
    if (above < k && k <= above + mine) {
      for (int i = 0; i < share; ++i) {
        const int digit = kDigits - 1 - thread * share - i;
        const int inside = shared.histogram[digit];
        if (above + inside >= k) {
          shared.digit = digit;
          shared.above = above;
          shared.inside = inside;
          break;
        }
        above += inside;
      }
    }
    __syncthreads();
    prefix = prefix << bits | static_cast<unsigned>(shared.digit);
    k -= shared.above;
    shift = low;
    // Done when all keys of the digit are wanted. Keys are distinct, so this always happens.
    if (shared.inside == k || shift == 0) return prefix << shift;
  }
}

// Writes a row's members, their number and the membership words: those tokens j of the sequence for
// which chosen(j) holds, at most row.size of them. All threads of the block, a multiple of 32.
template <typename Chosen>
__device__ void WriteMembers(const CastArgs& a, const CastRow& row, const Chosen& chosen,
                             SelectShared& shared) {
  const int64_t words = int64_t{a.clusterings} * a.shape.clusters;
  Membership* const word_at = a.membership + a.tiles32[row.sequence] * words +
                              int64_t{row.clustering} * a.shape.clusters + row.cluster;
  const int lane = threadIdx.x % 32;
  int written = 0;
  int parity = 0;
  for (int base = 0; base < row.tokens; base += static_cast<int>(blockDim.x), parity ^= 1) {
    const int j = base + static_cast<int>(threadIdx.x);
    const bool takes = j < row.tokens && chosen(j);
    const uint32_t bits = __ballot_sync(0xffffffffu, takes);
    int total;
    const int before = written + SumBefore(takes ? 1 : 0, shared.warp_sums[parity], &total);
    if (takes) a.members[row.slot + before] = j;
    if (lane == 0 && j < row.tokens) {
      word_at[j / 32 * words] = make_uint2(bits, static_cast<unsigned>(before));
    }
    written += total;
  }
  if (threadIdx.x == 0) a.counts[row.index] = written;
}

}  // namespace castor::kernels::cuda

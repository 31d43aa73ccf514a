// Exact selection of the greatest k of a list, for the top keys of a centroid.
//
// A candidate is one number that orders scores from low to high and equal scores from the higher
// key index to the lower, so that "the k greatest" is exactly the definition's set, and no two are
// equal.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace castor::kernels::cuda {

__device__ __forceinline__ uint64_t MakeCandidate(float score, int32_t key) {
  // -0 and 0 are equal scores.
  const uint32_t bits = __float_as_uint(score + 0.0f);
  const uint32_t ordered = bits & 0x80000000 ? ~bits : bits | 0x80000000;
  return uint64_t{ordered} << 32 | ~static_cast<uint32_t>(key);
}
__device__ __forceinline__ int32_t KeyOf(uint64_t candidate) {
  return static_cast<int32_t>(~static_cast<uint32_t>(candidate));
}
__device__ __forceinline__ float ScoreOf(uint64_t candidate) {
  const auto ordered = static_cast<uint32_t>(candidate >> 32);
  return __uint_as_float(ordered & 0x80000000 ? ordered & 0x7fffffff : ~ordered);
}

// The k-th greatest of the `count` different numbers at(0), at(1), ..., for 1 <= k <= count. All
// lanes of a warp call it and get the result; lane l looks at numbers l, l + 32, .... `bits` is how
// many low bits the numbers have.
//
// Finds the answer's bits from the top: if at least k numbers share its bits so far and have a one
// next, so does the answer. Stops as soon as exactly k numbers are at or above the bits found. The
// result is then at most the k-th greatest number and greater than the next one.
template <int bits = 64, typename At>
__device__ uint64_t KthGreatest(At at, int count, int k) {
  const int lane = threadIdx.x % 32;
  uint64_t prefix = 0;
  for (int bit = bits - 1; bit >= 0; --bit) {
    const uint64_t trial = prefix | uint64_t{1} << bit;
    int above = 0;
    for (int i = lane; i < count; i += 32) above += at(i) >= trial;
    above = __reduce_add_sync(0xffffffff, above);
    if (above >= k) prefix = trial;
    if (above == k) break;
  }
  return prefix;
}

// Cuts list[0, count) down to its k greatest, in place and in their order. Called by a whole warp.
// Returns the least score among them. Requires count > k.
__device__ inline float KeepGreatest(uint64_t* list, int count, int k) {
  const int lane = threadIdx.x % 32;
  const uint64_t least = KthGreatest([&](int i) { return list[i]; }, count, k);
  int kept = 0;
  uint32_t score = 0xffffffff;
  for (int base = 0; base < count; base += 32) {
    const int i = base + lane;
    const uint64_t candidate = i < count ? list[i] : 0;
    const bool keep = i < count && candidate >= least;
    const unsigned kept_lanes = __ballot_sync(0xffffffff, keep);
    if (keep) {
      // Never beyond what has been read.
      list[kept + __popc(kept_lanes & ((1u << lane) - 1))] = candidate;
      score = min(score, static_cast<uint32_t>(candidate >> 32));
    }
    kept += __popc(kept_lanes);
    __syncwarp();
  }
  score = __reduce_min_sync(0xffffffff, score);
  return ScoreOf(uint64_t{score} << 32);
}

// True if a key of this score may be among the top k. `threshold` is a score that k earlier keys
// reach, so later keys of the same score are not. A NaN threshold lets everything pass.
__device__ __forceinline__ bool Passes(float score, float threshold) {
  return !(score <= threshold);
}

}  // namespace castor::kernels::cuda

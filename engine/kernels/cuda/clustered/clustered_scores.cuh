// What both implementations of the centroids' attention share: a block's piece of work, the sample
// that bounds a centroid's top keys, and the lists of candidates.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/top_keys.cuh"

namespace castor::kernels::cuda {

// Which centroids and keys a block of the attend stage has. Row tiles are consecutive within a
// split, and splits within a sequence.
struct KeyRange {
  int32_t key_begin;       // of the sequence, among all keys
  int32_t first, end;      // keys of the sequence
  int32_t centroid_begin;  // of the block's rows, among all centroids
  int rows;
  int64_t partial;         // of the first row, among a head's
  const float* centroids;  // [rows, head_dim]

  __device__ KeyRange(const ClusteredArgs& args, int32_t tile, int head, int block_rows) {
    const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kAttendTiles, tile));
    const KeySplit split = SplitKeys(sequence.keys, sequence.centroids, args.shape.topk);
    const int32_t within = tile - args.Offsets(ClusteredPlan::kAttendTiles)[sequence.index];
    const int32_t row_tiles = (sequence.centroids + block_rows - 1) / block_rows;
    const int32_t part = within / row_tiles;
    const int32_t row = within % row_tiles * block_rows;
    key_begin = sequence.key_begin;
    first = static_cast<int32_t>(part * split.keys);
    end = min(first + static_cast<int32_t>(split.keys), sequence.keys);
    centroid_begin = sequence.centroid_begin + row;
    rows = min(block_rows, sequence.centroids - row);
    partial = args.Offsets(ClusteredPlan::kPartials)[sequence.index] +
              int64_t{part} * sequence.centroids + row;
    centroids =
        args.workspace.centroids + (head * args.centroids + centroid_begin) * args.shape.head_dim;
  }
};

// ---- the sample
// ----------------------------------------------------------------------------------

// Disjoint groups of sampled keys; as many as the threads of ThresholdKernel.
inline constexpr int kSampleGroups = 256;

// How many keys of a sequence are sampled for a bound, a multiple of kSampleGroups. 0 for few keys
// or a large k, where the lists alone suffice.
__device__ __forceinline__ int32_t SampleSize(int32_t keys, int topk) {
  if (keys < 4 * kSampleGroups || topk > kSampleGroups / 4) return 0;
  const int32_t sample = keys / 16 / kSampleGroups * kSampleGroups;
  return min(max(sample, 2 * kSampleGroups), 8 * kSampleGroups);
}

// A number below the k-th greatest score of all keys, from the greatest score of each group; or
// NaN, which every score passes. Called by a whole warp.
__device__ __forceinline__ float BoundOf(const float* greatest, int topk) {
  const uint64_t bound = KthGreatest<32>([&](int i) { return MakeCandidate(greatest[i], 0) >> 32; },
                                         kSampleGroups, topk);
  // The next lower number, so that the key itself passes too.
  return ScoreOf((bound - 1) << 32);
}

// ---- lists of candidates
// -------------------------------------------------------------------------

// One centroid's list in one split, in device memory, as seen by the threads that share its row.
// They belong to one warp, and the list's length is in shared memory. Without a list, nothing is
// added. Threads add in any order: only the set matters.
class RowCandidates {
 public:
  RowCandidates() = default;
  __device__ RowCandidates(const ClusteredArgs& args, const KeyRange& range, int head, int row,
                           int* shared_count)
      : count_(shared_count), topk_(args.shape.topk) {
    const int64_t at = head * args.partials + range.partial + row;
    list_ = args.workspace.candidates + at * CandidateCapacity(topk_);
    final_count_ = args.workspace.candidate_counts + at;
    threshold_ = args.workspace.thresholds[head * args.centroids + range.centroid_begin + row];
  }

  __device__ void Offer(float score, int32_t key) {
    if (list_ == nullptr || !Passes(score, threshold_)) return;
    list_[atomicAdd(count_, 1)] = MakeCandidate(score, key);
  }

  // After a tile: makes room for another. `threads` neighbouring lanes share a row; all lanes of
  // the warp call it.
  template <int threads>
  __device__ void Trim() {
    __syncwarp();
    const int count = list_ == nullptr ? 0 : *count_;
    const bool full = count + kKeyTile > CandidateCapacity(topk_) && list_ != nullptr;
    for (unsigned left = __ballot_sync(0xffffffff, full); left != 0;) {
      const int from = __ffs(left) - 1;
      auto* const list = reinterpret_cast<uint64_t*>(__shfl_sync(
          0xffffffff, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(list_)), from));
      const int k = __shfl_sync(0xffffffff, topk_, from);
      const float least = KeepGreatest(list, __shfl_sync(0xffffffff, count, from), k);
      const int row = static_cast<int>(threadIdx.x) % 32 / threads;
      if (row == from / threads) {
        threshold_ = least;
        if (static_cast<int>(threadIdx.x) % 32 == from) *count_ = k;
      }
      left &= ~(((1u << threads) - 1) << (from / threads * threads));
    }
    __syncwarp();
  }

  // After the last tile, by one of the row's threads.
  __device__ void Finish() {
    if (list_ != nullptr) *final_count_ = *count_;
  }

 private:
  uint64_t* list_ = nullptr;
  int* count_ = nullptr;
  int32_t* final_count_ = nullptr;
  int topk_ = 0;
  float threshold_ = 0;
};

}  // namespace castor::kernels::cuda

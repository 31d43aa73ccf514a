// The blocks of clustered attention: constants and pure functions that both the host's plan and the
// kernels use.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define CASTOR_HOST_DEVICE __host__ __device__
#else
#define CASTOR_HOST_DEVICE
#endif

namespace castor::kernels::cuda {

inline constexpr int kTokenTile = 64;    // queries that a block hashes or writes
inline constexpr int kKeyTile = 64;      // keys that a block attends to at a time
inline constexpr int kRowTile = 32;      // centroids of a block
inline constexpr int kFewestKeys = 256;  // of a split, so that its results are worth their bytes
inline constexpr int kMostSplits = 64;   // of one sequence's keys, for up to kSplitRows centroids
inline constexpr int kSplitRows = 128;

// Candidates for the top k that a block may list for one centroid. After each tile, a list that the
// next tile's keys could overflow is cut down to k.
CASTOR_HOST_DEVICE constexpr int CandidateCapacity(int topk) {
  return topk == 0 ? 0 : topk + 2 * kKeyTile;
}

CASTOR_HOST_DEVICE constexpr int64_t RowTiles(int64_t centroids) {
  return (centroids + kRowTile - 1) / kRowTile;
}

// A sequence's keys, among `count` blocks of `keys` each. Depends on the sequence's own lengths
// alone.
struct KeySplit {
  int64_t keys;
  int64_t count;
};

CASTOR_HOST_DEVICE constexpr KeySplit SplitKeys(int64_t keys, int64_t centroids, int64_t topk) {
  if (keys == 0 || centroids == 0) return {kFewestKeys, 0};
  const int64_t tiles = (centroids + kSplitRows - 1) / kSplitRows;
  const int64_t most = tiles >= kMostSplits ? 1 : kMostSplits / tiles;
  int64_t each = (keys + most - 1) / most;
  if (each < kFewestKeys) each = kFewestKeys;
  if (each < 4 * topk) each = 4 * topk;  // else the blocks' lists outgrow the keys
  each = (each + kKeyTile - 1) / kKeyTile * kKeyTile;
  return {each, (keys + each - 1) / each};
}

}  // namespace castor::kernels::cuda

// A warp's flash attention of 16 rows over a tile of keys and values in shared memory, on tensor
// cores, for half types: the common part of the centroids' attention and the members' refinement.
// These differ in the rows, in the keys that a tile holds, and in what else happens to a score.
//
// A lane has, with g = lane / 4 and t = lane % 4, of row g + 8 (i / 2) the scores of the keys 8n +
// 2t + i % 2 in scores[n][i], and the columns 8n + 2t + i % 2 of its output in output[n][i].
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/quad.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {

// Elements from row to row of a tile: far enough apart that ldmatrix has no bank conflicts.
template <int dim>
inline constexpr int kTileStride = dim + 8;

// Starts the copies of a tile's rows, divided among `threads` threads: row(r) points to row r of
// the source. Rows beyond `count` become zero.
template <typename T, int dim, int rows, int threads, typename Row>
__device__ __forceinline__ void CopyRows(int thread, int count, T* tile, Row row) {
  constexpr int kPieces = dim / 8;  // of 16 bytes, a row
  for (int i = thread; i < rows * kPieces; i += threads) {
    const int r = i / kPieces;
    const int piece = i % kPieces * 8;
    CopyAsync16(tile + r * kTileStride<dim> + piece, row(min(r, count - 1)) + piece,
                r < count ? 16 : 0);
  }
}

// Scores of a tile's keys, 8 * groups of them: multiply(k, keys, scores[n]) adds the products of 16
// dimensions from 16k on with 8 keys from 8n on.
template <typename T, int dim, int groups, typename Multiply>
__device__ __forceinline__ void ScoreTile(const T* keys, float (&scores)[groups][4],
                                          Multiply multiply) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < dim / 16; ++k) {
#pragma unroll
    for (int n = 0; n < groups; n += 2) {
      // Matrices: keys 8n.. and dimensions 16k.., then + 8; then the next 8 keys.
      uint32_t both[4];
      LoadMatrices(both, keys + (n * 8 + lane / 16 * 8 + lane % 8) * kTileStride<dim> + k * 16 +
                             lane / 8 % 2 * 8);
      const uint32_t here[2] = {both[0], both[1]};
      const uint32_t next[2] = {both[2], both[3]};
      multiply(k, here, scores[n]);
      multiply(k, next, scores[n + 1]);
    }
  }
}

// Scores with the scale's sign, -infinity where there is no key, become weights relative to the
// greatest score so far; earlier sums are rescaled to it. `magnitude` is the scale's. `sum` is of
// this lane's weights.
template <int dim, int groups>
__device__ __forceinline__ void WeightTile(float (&scores)[groups][4], float magnitude,
                                           float (&greatest)[2], float (&sum)[2],
                                           float (&output)[dim / 8][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float now = greatest[half];
#pragma unroll
    for (int n = 0; n < groups; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) now = fmaxf(now, scores[n][i]);
    }
    now = QuadMax(now);
    const float base = now == -INFINITY ? 0 : now;
    const float rescale = Exp2((greatest[half] - base) * magnitude);
    greatest[half] = now;
    sum[half] *= rescale;
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
      output[n][2 * half] *= rescale;
      output[n][2 * half + 1] *= rescale;
    }
#pragma unroll
    for (int n = 0; n < groups; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[n][i] = Exp2((scores[n][i] - base) * magnitude);
        sum[half] += scores[n][i];
      }
    }
  }
}

// Adds the weighted values of a tile. A product's result has the layout of the next one's operand.
template <typename T, int dim, int groups>
__device__ __forceinline__ void AddValues(const float (&weights)[groups][4], const T* values,
                                          float (&output)[dim / 8][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < groups / 2; ++k) {
    const uint32_t rounded[4] = {RoundPair<T>(weights[2 * k][0], weights[2 * k][1]),
                                 RoundPair<T>(weights[2 * k][2], weights[2 * k][3]),
                                 RoundPair<T>(weights[2 * k + 1][0], weights[2 * k + 1][1]),
                                 RoundPair<T>(weights[2 * k + 1][2], weights[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < dim / 8; n += 2) {
      uint32_t both[4];
      LoadMatricesTransposed(
          both, values + (k * 16 + lane % 16) * kTileStride<dim> + n * 8 + lane / 16 * 8);
      const uint32_t here[2] = {both[0], both[1]};
      const uint32_t next[2] = {both[2], both[3]};
      MmaM16N8K16<T>(output[n], rounded, here);
      MmaM16N8K16<T>(output[n + 1], rounded, next);
    }
  }
}

}  // namespace castor::kernels::cuda

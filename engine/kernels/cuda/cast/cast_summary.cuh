// A cluster's summary, step 5 of CAST. A block of the inner attention computes it from the tiles of
// keys and values that it has in shared memory anyway.
#pragma once

#include "engine/kernels/cuda/cast/cast_args.cuh"
#include "engine/kernels/cuda/cast/cast_math.cuh"
#include "engine/kernels/cuda/cast/cast_tile.cuh"

namespace castor::kernels::cuda {

inline constexpr int kInsideThreads = 128;
inline constexpr int kKeys = 64;  // of a tile

template <typename T, int kColumns>
struct InsideShared {
  static constexpr int kRows = 64 * CastRowTiles(sizeof(T) == 4, kColumns);
  static constexpr int kStride = PairStride(kColumns);

  Pair<T> query[kRows * kStride];
  Pair<T> key[kKeys * kStride];
  Pair<T> value[kKeys * kStride];
  float surrogate[kColumns];
  float scores[kKeys];   // the summary's, base 2; for Laplace its weights
  float weights[kKeys];  // 2^(score - max)
  float partial[kInsideThreads];
  float partial_sum[kInsideThreads];
};

// The summary of a cluster for one head: every thread sums one column over a part of the keys.
template <typename T, int kColumns>
class Summary {
 public:
  using Shared = InsideShared<T, kColumns>;

  // Adds this piece of the products with the surrogate; two threads a key.
  __device__ void Multiply(const Shared& shared) {
    const Pair<T>* const row = shared.key + threadIdx.x / 2 * Shared::kStride;
    const int half = threadIdx.x % 2 * (kColumns / 4);
#pragma unroll 8
    for (int p = half; p < half + kColumns / 4; ++p) {
      const float2 key = Unpair<T>(row[p]);
      product_ += key.x * shared.surrogate[2 * p] + key.y * shared.surrogate[2 * p + 1];
    }
  }

  // Shares the tile's scores with the block; a barrier follows.
  __device__ void Score(const CastArgs& a, Shared& shared, const int32_t* members, int64_t token,
                        int left) {
    const int key = static_cast<int>(threadIdx.x) / 2;
    const float product = product_ + __shfl_xor_sync(0xffffffffu, product_, 1);
    product_ = 0;
    float score = a.shape.laplace ? 0 : -INFINITY;
    if (key < left) {
      const float phi = a.batch.gate[token + members[key]];
      score = a.shape.laplace ? Laplace(product * LaplaceFactorOf(a, -phi))
                              : FiniteProduct(product * a.scale.sign, ScaleFactorOf(a, -phi));
    }
    if (threadIdx.x % 2 == 0) shared.scores[key] = score;
  }

  // Adds the tile's values. All threads; the values and scores are there.
  __device__ void Add(const CastArgs& a, Shared& shared, int left) {
    constexpr int kPart = kKeys / kParts;
    if (a.shape.laplace) {
      if (threadIdx.x < kKeys) shared.weights[threadIdx.x] = shared.scores[threadIdx.x];
    } else {
      const int lane = threadIdx.x % 32;
      float max = fmaxf(shared.scores[lane], shared.scores[lane + 32]);
#pragma unroll
      for (int bits = 16; bits > 0; bits /= 2) {
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, bits));
      }
      max = fmaxf(max, max_);
      value_ = Rescaled(value_, max_, max, 1);
      sum_ = Rescaled(sum_, max_, max, 1);
      max_ = max;
      if (threadIdx.x < kKeys) shared.weights[threadIdx.x] = Exp2(shared.scores[threadIdx.x] - max);
    }
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x) % kColumns;
    const int part = static_cast<int>(threadIdx.x) / kColumns;
    if (part >= kParts) return;
    const int end = min(left, (part + 1) * kPart);
    for (int key = part * kPart; key < end; ++key) {
      const float weight = shared.weights[key];
      const T* const row = reinterpret_cast<const T*>(shared.value + key * Shared::kStride);
      value_ += weight * ToFloat(row[column]);
      sum_ += weight;
    }
  }

  // Writes the row, [columns], as fp32 or in the element type.
  __device__ void Write(const CastArgs& a, Shared& shared, int64_t at, int columns) {
    shared.partial[threadIdx.x] = value_;
    shared.partial_sum[threadIdx.x] = sum_;
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x);
    if (column >= kColumns || column >= columns) return;
    float value = 0;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      value += shared.partial[part * kColumns + column];
      sum += shared.partial_sum[part * kColumns + column];
    }
    if (!a.shape.laplace) value /= sum;
    if (a.wide) {
      static_cast<float*>(a.summaries)[at + column] = value;
    } else {
      static_cast<T*>(a.summaries)[at + column] = FromFloat<T>(value);
    }
  }

 private:
  static constexpr int kParts = kInsideThreads / kColumns;

  float product_ = 0;
  float max_ = -INFINITY;
  float value_ = 0;
  float sum_ = 0;
};

}  // namespace castor::kernels::cuda

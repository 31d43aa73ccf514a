// Tiles of rows in shared memory and a warp's matrix products over them, the same code for every
// element type. Elements go in pairs of neighbours in the summed dimension: two halves in 32 bits,
// or a float2. A product of depth 16 is one m16n8k16 for half types; for fp32 it is two m16n8k8 of
// three TF32 products each (hi*hi + hi*lo + lo*hi), which keeps about 21 bits.
//
// Shared rows are padded by four pairs: then the eight rows and four pairs that a warp's fragment
// names lie in different banks, by rows and by columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {

template <typename T>
struct PairTraits {
  using Type = uint32_t;
};
template <>
struct PairTraits<float> {
  using Type = float2;
};
template <typename T>
using Pair = typename PairTraits<T>::Type;

// Pairs from row to row of a tile of `columns`, a multiple of 16.
__host__ __device__ constexpr int PairStride(int columns) { return columns / 2 + 4; }

template <typename T>
__host__ __device__ constexpr int TileBytes(int rows, int columns) {
  return rows * PairStride(columns) * static_cast<int>(sizeof(Pair<T>));
}

template <typename T>
__device__ __forceinline__ Pair<T> MakePair(float x, float y) {
  if constexpr (sizeof(T) == 4) {
    return make_float2(x, y);
  } else {
    return RoundPair<T>(x, y);
  }
}

template <typename T>
__device__ __forceinline__ float2 Unpair(Pair<T> pair);
template <>
__device__ __forceinline__ float2 Unpair<float>(float2 pair) {
  return pair;
}
template <>
__device__ __forceinline__ float2 Unpair<__half>(uint32_t pair) {
  return make_float2(__half2float(__ushort_as_half(static_cast<unsigned short>(pair & 0xffffu))),
                     __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16))));
}
template <>
__device__ __forceinline__ float2 Unpair<__nv_bfloat16>(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

// Reductions over a quad: the four neighbouring lanes that share a row of a tensor core's result.
// All four get the result.
__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Two pairs of neighbouring columns, of rows k and k + 1, become the pairs of neighbouring rows of
// the even and of the odd column.
__device__ __forceinline__ void Transpose(uint32_t first, uint32_t second, uint32_t& even,
                                          uint32_t& odd) {
  even = (first & 0xffffu) | second << 16;
  odd = first >> 16 | (second & 0xffff0000u);
}
__device__ __forceinline__ void Transpose(float2 first, float2 second, float2& even, float2& odd) {
  even = make_float2(first.x, second.x);
  odd = make_float2(first.y, second.y);
}

// d[16, 8] += a[16, 16] b[16, 8]; fragments as of m16n8k16 in ptx.cuh.
template <typename T>
__device__ __forceinline__ void Multiply(float (&d)[4], const Pair<T> (&a)[4],
                                         const Pair<T> (&b)[2]) {
  if constexpr (sizeof(T) == 4) {
    // The order of the summed dimension is free as long as both sides agree: here t and t + 4 of an
    // m16n8k8 are the neighbours 2t and 2t + 1.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 low = a[2 * half];
      const float2 high = a[2 * half + 1];
      const float left[4] = {low.x, high.x, low.y, high.y};
      const float right[2] = {b[half].x, b[half].y};
      uint32_t left_big[4], left_rest[4], right_big[2], right_rest[2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left_big[i] = ToTf32(left[i]);
        left_rest[i] = ToTf32(left[i] - __uint_as_float(left_big[i]));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        right_big[i] = ToTf32(right[i]);
        right_rest[i] = ToTf32(right[i] - __uint_as_float(right_big[i]));
      }
      MmaM16N8K8Tf32(d, left_rest, right_big);
      MmaM16N8K8Tf32(d, left_big, right_rest);
      MmaM16N8K8Tf32(d, left_big, right_big);
    }
  } else {
    MmaM16N8K16<T>(d, a, b);
  }
}

// Rows of a tensor for LoadTile: `stride` elements apart, from row `begin` on up to `end`; of each
// the elements from `column` on.
template <typename T>
struct StridedRows {
  const T* first;
  int64_t stride;
  int begin;
  int end;
  int column = 0;

  __device__ __forceinline__ const T* operator()(int r) const {
    const int at = begin + r;
    return at < end ? first + at * stride + column : nullptr;
  }
};

// The rows that members [begin, end) name, for LoadTile: `stride` elements apart, from each the
// elements from `column` on.
template <typename T>
struct GatheredRows {
  const T* first;
  int64_t stride;
  const int32_t* members;
  int begin;
  int end;
  int column = 0;

  __device__ __forceinline__ const T* operator()(int r) const {
    const int at = begin + r;
    return at < end ? first + members[at] * stride + column : nullptr;
  }
};

// All threads copy `rows` rows, kColumns elements each, to shared memory: row(r) points to the
// elements, of which the first `columns` exist, or is nullptr for a row of zeros. Missing elements
// become zero. With `vector`, rows and `columns` are multiples of 16 bytes, and their copies run
// until WaitCopies. In both cases a barrier must follow before the tile is read.
template <typename T, int kColumns, typename Row>
__device__ __forceinline__ void LoadTile(Pair<T>* tile, int rows, int columns, bool vector,
                                         Row row) {
  constexpr int kElements = 16 / sizeof(T);
  constexpr int kUnits = kColumns / kElements;
  for (int u = static_cast<int>(threadIdx.x); u < rows * kUnits; u += blockDim.x) {
    const int r = u / kUnits;
    const int e = u % kUnits * kElements;
    const T* const from = row(r);
    T* const to = reinterpret_cast<T*>(tile + r * PairStride(kColumns)) + e;
    if (from == nullptr || e >= columns) {
      *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
    } else if (vector) {
      CopyAsync16(to, from + e);
    } else {
      for (int k = 0; k < kElements; ++k) {
        to[k] = e + k < columns ? from[e + k] : FromFloat<T>(0);
      }
    }
  }
}

template <int kM, int kN>
__device__ __forceinline__ void Clear(float (&c)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
    }
  }
}

// c[m][n] += rows 16 m .. of `a` times rows 8 n .. of `b`, over 16 * steps columns. `a_step` is the
// distance in pairs between the first rows of neighbouring m. Column tiles from `valid` on, counted
// in single columns, are left out.
template <typename T, int kStride, int kM, int kN>
__device__ __forceinline__ void MultiplyRows(float (&c)[kM][kN][4], const Pair<T>* a, int a_step,
                                             const Pair<T>* b, int steps, int valid) {
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  for (int k = 0; k < steps; ++k) {
    Pair<T> left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const Pair<T>* const at = a + m * a_step + g * kStride + 8 * k + t;
      left[m][0] = at[0];
      left[m][1] = at[8 * kStride];
      left[m][2] = at[4];
      left[m][3] = at[8 * kStride + 4];
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      if (8 * n >= valid) continue;
      const Pair<T>* const at = b + (8 * n + g) * kStride + 8 * k + t;
      const Pair<T> right[2] = {at[0], at[4]};
#pragma unroll
      for (int m = 0; m < kM; ++m) Multiply<T>(c[m][n], left[m], right);
    }
  }
}

// o[m] += p[m] v, with p [16, 8 * kN] in the registers of a product's result and v [8 * kN,
// kColumns] in shared memory. Columns come out permuted: of the 16 that o[m][2j] and o[m][2j + 1]
// cover, this thread holds 4t, 4t + 1, 4t + 2, 4t + 3 as o[2j][0], o[2j + 1][0], o[2j][1],
// o[2j + 1][1] (row g), and the same with 2 and 3 in row g + 8. So a pair read from a row of v
// serves two products, and four neighbouring results are stored at once.
template <typename T, int kColumns, int kM, int kN>
__device__ __forceinline__ void MultiplyWeights(float (&o)[kM][kColumns / 8][4],
                                                const float (&p)[kM][kN][4], const Pair<T>* v,
                                                int valid) {
  constexpr int kStride = PairStride(kColumns);
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    if (16 * k >= valid) continue;
    Pair<T> left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      left[m][0] = MakePair<T>(p[m][2 * k][0], p[m][2 * k][1]);
      left[m][1] = MakePair<T>(p[m][2 * k][2], p[m][2 * k][3]);
      left[m][2] = MakePair<T>(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
      left[m][3] = MakePair<T>(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
    }
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      const Pair<T>* const at = v + (16 * k + 2 * t) * kStride + 8 * j + g;
      Pair<T> even[2], odd[2];
      Transpose(at[0], at[kStride], even[0], odd[0]);
      Transpose(at[8 * kStride], at[9 * kStride], even[1], odd[1]);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        Multiply<T>(o[m][2 * j], left[m], even);
        Multiply<T>(o[m][2 * j + 1], left[m], odd);
      }
    }
  }
}

// Row 8r + g of what MultiplyWeights leaves: the columns 16j + 4t and the three after it.
template <int kN>
__device__ __forceinline__ float4 FourOf(const float (&o)[kN][4], int r, int j) {
  return make_float4(o[2 * j][2 * r], o[2 * j + 1][2 * r], o[2 * j][2 * r + 1],
                     o[2 * j + 1][2 * r + 1]);
}

// Four neighbouring elements, aligned to their size.
template <typename T>
__device__ __forceinline__ void StoreFour(T* to, const float4& x) {
  if constexpr (sizeof(T) == 4) {
    *reinterpret_cast<float4*>(to) = x;
  } else {
    *reinterpret_cast<uint2*>(to) = make_uint2(MakePair<T>(x.x, x.y), MakePair<T>(x.z, x.w));
  }
}
template <typename T>
__device__ __forceinline__ float4 LoadFour(const T* from) {
  if constexpr (sizeof(T) == 4) {
    return *reinterpret_cast<const float4*>(from);
  } else {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    const float2 low = Unpair<T>(bits.x);
    const float2 high = Unpair<T>(bits.y);
    return make_float4(low.x, low.y, high.x, high.y);
  }
}

}  // namespace castor::kernels::cuda

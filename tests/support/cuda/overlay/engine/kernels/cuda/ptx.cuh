// engine/kernels/cuda/ptx.cuh for the emulator: the same functions, written from the definitions of
// the instructions (PTX ISA). The original documents which elements each lane holds.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/support/cuda/emulator.h"

namespace castor::kernels::cuda {

namespace emulator = castor::cuda_emulator;

template <typename T>
T* DynamicShared() {
  return reinterpret_cast<T*>(emulator::DynamicShared());
}

inline void CopyAsync16(void* shared, const void* global) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (!aligned(shared) || !aligned(global)) emulator::Fail("cp.async of addresses off 16 bytes");
  emulator::QueueCopy(shared, global, 16);
}
inline void CommitCopies() { emulator::CommitCopies(); }
template <int groups_left>
void WaitCopies() {
  emulator::WaitCopies(groups_left);
}

struct MmaLane {
  float* d;           // [4]
  const uint32_t* a;  // [4]
  const uint32_t* b;  // [2]
};

// Element `i` of a 32-bit register.
inline float HalfAt(uint32_t bits, int i) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(bits >> (16 * i))));
}
inline float BFloat16At(uint32_t bits, int i) {
  return __bfloat162float(__ushort_as_bfloat16(static_cast<uint16_t>(bits >> (16 * i))));
}
inline float Tf32At(uint32_t bits, int) { return std::bit_cast<float>(bits & ~0x1fffu); }

// D[16, 8] += A[16, k] B[k, 8]; each register holds `per_register` elements adjacent in k.
template <int per_register, auto At>
void Mma(float* d, const uint32_t* a, const uint32_t* b) {
  MmaLane lane{d, a, b};
  emulator::WarpOperation(
      0xffffffff,
      [](uint32_t, void* const* lanes) {
        constexpr int kDepth = 8 * per_register;
        float left[16][kDepth];
        float right[kDepth][8];
        for (int l = 0; l < 32; ++l) {
          const MmaLane& from = *static_cast<MmaLane*>(lanes[l]);
          const int g = l / 4;
          const int first = l % 4 * per_register;
          for (int i = 0; i < per_register; ++i) {
            const int low = first + i;
            const int high = low + kDepth / 2;
            left[g][low] = At(from.a[0], i);
            left[g + 8][low] = At(from.a[1], i);
            left[g][high] = At(from.a[2], i);
            left[g + 8][high] = At(from.a[3], i);
            right[low][g] = At(from.b[0], i);
            right[high][g] = At(from.b[1], i);
          }
        }
        for (int l = 0; l < 32; ++l) {
          const MmaLane& to = *static_cast<MmaLane*>(lanes[l]);
          for (int i = 0; i < 4; ++i) {
            const int row = l / 4 + i / 2 * 8;
            const int column = l % 4 * 2 + i % 2;
            float sum = to.d[i];
            for (int k = 0; k < kDepth; ++k) sum += left[row][k] * right[k][column];
            to.d[i] = sum;
          }
        }
      },
      &lane);
}

template <typename T>
void MmaM16N8K16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
inline void MmaM16N8K16<__half>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Mma<2, HalfAt>(d, a, b);
}
template <>
inline void MmaM16N8K16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
  Mma<2, BFloat16At>(d, a, b);
}
inline uint32_t ToTf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::isfinite(x) ? (bits + 0x1000) & ~0x1fffu : bits;
}
inline void MmaM16N8K8Tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Mma<1, Tf32At>(d, a, b);
}
inline float Exp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

}  // namespace castor::kernels::cuda

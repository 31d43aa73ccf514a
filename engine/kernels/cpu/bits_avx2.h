// The vectors of simd_avx2.h with the additions that clustering needs, see bits_avx512.h. Included
// only by files compiled with -mavx2 -mfma -mf16c.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/kernels/cpu/simd_avx2.h"

namespace castor::kernels {

struct Avx2Bits : Avx2 {
  static Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  static uint32_t Greater(Vec a, Vec b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
  }
  static uint32_t AtLeast(Vec a, Vec b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)));
  }
  static Vec IfGreater(Vec a, Vec b, Vec x, Vec y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
  }

  using Bits = __m256i;
  static constexpr int kWords = 4;

  static Bits LoadBits(const uint64_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void StoreBits(uint64_t* p, Bits x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
  }
  static Bits Repeat(uint64_t word) { return _mm256_set1_epi64x(static_cast<int64_t>(word)); }
  static Bits And(Bits a, Bits b) { return _mm256_and_si256(a, b); }
  static Bits Or(Bits a, Bits b) { return _mm256_or_si256(a, b); }
  static Bits Xor(Bits a, Bits b) { return _mm256_xor_si256(a, b); }
  static Bits Not(Bits a) { return _mm256_xor_si256(a, _mm256_set1_epi64x(-1)); }
  template <int kCount>
  static Bits ShiftLeft(Bits a) {
    return _mm256_slli_epi64(a, kCount);
  }
  template <int kCount>
  static Bits ShiftRight(Bits a) {
    return _mm256_srli_epi64(a, kCount);
  }
  static Bits Parity(Bits a, Bits b, Bits c) { return Xor(Xor(a, b), c); }
  static Bits Majority(Bits a, Bits b, Bits c) { return Or(And(a, b), And(Xor(a, b), c)); }
  static Bits Borrow(Bits a, Bits b, Bits borrow) {
    // b and borrow where a and b are alike or not: (~a & b) | (~(a ^ b) & borrow).
    return Or(_mm256_andnot_si256(a, b), _mm256_andnot_si256(Xor(a, b), borrow));
  }
  static Bits Select(Bits which, Bits a, Bits b) { return Xor(b, And(which, Xor(a, b))); }

  static void AddBits(int32_t* counts, uint64_t code, int32_t amount) {
    const __m256i add = _mm256_set1_epi32(amount);
    const __m256i places = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    for (int i = 0; i < 8; ++i) {
      const __m256i byte = _mm256_set1_epi32(static_cast<int32_t>((code >> (8 * i)) & 0xff));
      const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(byte, places), places);
      auto* const at = reinterpret_cast<__m256i*>(counts + 8 * i);
      _mm256_storeu_si256(at, _mm256_add_epi32(_mm256_loadu_si256(at), _mm256_and_si256(set, add)));
    }
  }
  static uint64_t CountsAbove(const int32_t* counts, int32_t least) {
    uint64_t code = 0;
    for (int i = 0; i < 8; ++i) {
      const __m256i above =
          _mm256_cmpgt_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(counts + 8 * i)),
                             _mm256_set1_epi32(least));
      const auto bits = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(above)));
      code |= uint64_t{bits} << (8 * i);
    }
    return code;
  }
};

}  // namespace castor::kernels

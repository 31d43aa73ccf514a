// The vectors of simd_avx512.h with the additions that clustering needs: comparisons that yield
// bits, and vectors of bits. Included only by files compiled for AVX-512 (F, BW, DQ, VL).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/kernels/cpu/simd_avx512.h"

namespace castor::kernels {

struct Avx512Bits : Avx512 {
  // ---- floats: bit i of a mask is lane i's
  static Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  static uint32_t Greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static uint32_t AtLeast(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
  // x where a > b, else y.
  static Vec IfGreater(Vec a, Vec b, Vec x, Vec y) {
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), x);
  }

  // ---- bits: kWords words of 64
  using Bits = __m512i;
  static constexpr int kWords = 8;

  static Bits LoadBits(const uint64_t* p) { return _mm512_loadu_si512(p); }
  static void StoreBits(uint64_t* p, Bits x) { _mm512_storeu_si512(p, x); }
  static Bits Repeat(uint64_t word) { return _mm512_set1_epi64(static_cast<int64_t>(word)); }
  static Bits And(Bits a, Bits b) { return _mm512_and_si512(a, b); }
  static Bits Or(Bits a, Bits b) { return _mm512_or_si512(a, b); }
  static Bits Xor(Bits a, Bits b) { return _mm512_xor_si512(a, b); }
  static Bits Not(Bits a) { return _mm512_ternarylogic_epi64(a, a, a, 0x0f); }
  template <int kCount>
  static Bits ShiftLeft(Bits a) {
    return _mm512_slli_epi64(a, kCount);
  }
  template <int kCount>
  static Bits ShiftRight(Bits a) {
    return _mm512_srli_epi64(a, kCount);
  }
  // Sum and carry of three bits.
  static Bits Parity(Bits a, Bits b, Bits c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
  static Bits Majority(Bits a, Bits b, Bits c) { return _mm512_ternarylogic_epi64(a, b, c, 0xe8); }
  // The borrow of a - b - borrow.
  static Bits Borrow(Bits a, Bits b, Bits borrow) {
    return _mm512_ternarylogic_epi64(a, b, borrow, 0x8e);
  }
  // a where `which` is set, else b.
  static Bits Select(Bits which, Bits a, Bits b) {
    return _mm512_ternarylogic_epi64(which, a, b, 0xca);
  }

  // ---- counts of a code's 64 bits
  // counts[t] += amount where bit t is set.
  static void AddBits(int32_t* counts, uint64_t code, int32_t amount) {
    const __m512i add = _mm512_set1_epi32(amount);
    for (int i = 0; i < 4; ++i) {
      const auto bits = static_cast<__mmask16>(code >> (16 * i));
      const __m512i before = _mm512_loadu_si512(counts + 16 * i);
      _mm512_storeu_si512(counts + 16 * i, _mm512_mask_add_epi32(before, bits, before, add));
    }
  }
  // Bit t is set where counts[t] > least.
  static uint64_t CountsAbove(const int32_t* counts, int32_t least) {
    uint64_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const uint64_t bits =
          _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(counts + 16 * i), _mm512_set1_epi32(least));
      code |= bits << (16 * i);
    }
    return code;
  }
};

}  // namespace castor::kernels

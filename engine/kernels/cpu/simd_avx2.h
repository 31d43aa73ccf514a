// Vectors of eight floats for the kernels that are written once for all instruction sets. Included
// only by files compiled with -mavx2 -mfma -mf16c.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace castor::kernels {

struct Avx2 {
  using Vec = __m256;
  static constexpr int kLanes = 8;
  // Rows of accumulators beside 1, 2 or 3 vectors: 12 of the 16 registers.
  static constexpr int kRows[4] = {0, 12, 6, 4};

  static Vec Zero() { return _mm256_setzero_ps(); }
  static Vec Broadcast(float x) { return _mm256_set1_ps(x); }
  static Vec BroadcastFrom(const float* p) { return _mm256_broadcast_ss(p); }
  static Vec Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
  static Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec Subtract(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  static Vec Multiply(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec Divide(Vec a, Vec b) { return _mm256_div_ps(a, b); }
  static Vec MultiplyAdd(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  // The greater one; `b` where one of them is NaN.
  static Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  // The lesser one, likewise.
  static Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  // 0 where of < least, else x.
  static Vec ZeroBelow(Vec x, Vec of, Vec least) {
    return _mm256_andnot_ps(_mm256_cmp_ps(of, least, _CMP_LT_OQ), x);
  }
  // The float whose exponent field is the low bits of x's representation.
  static Vec PowerOfTwo(Vec x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
  }

  static Vec LoadHalf(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Vec LoadBrain(const uint16_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // Of the two bfloat16 in each lane, the one in the low half, and the one in the high half.
  static Vec LowBrains(Vec x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 16));
  }
  static Vec HighBrains(Vec x) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(-65536)));
  }
  static void StoreHalf(uint16_t* p, Vec x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // To nearest, ties to even; NaN stays NaN.
  static void StoreBrain(uint16_t* p, Vec x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i chosen = _mm256_blendv_epi8(rounded, nan, is_nan);
    const __m256i packed = _mm256_packus_epi32(chosen, chosen);  // each half twice
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
  }
  static float HalfToFloat(uint16_t bits) { return _cvtsh_ss(bits); }
  static uint16_t FloatToHalf(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

  // rows[i][j] becomes rows[j][i].
  static void Transpose(Vec rows[kLanes]) {
    Vec a[8];
    for (int i = 0; i < 8; i += 2) {
      a[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      a[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    Vec b[8];
    for (int i = 0; i < 8; i += 4) {
      b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
      b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
      b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      rows[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
      rows[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
  }
};

}  // namespace castor::kernels

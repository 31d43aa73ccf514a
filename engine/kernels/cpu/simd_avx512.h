// Vectors of sixteen floats, see simd_avx2.h. Included only by files compiled with -mavx512f
// -mavx512bw -mavx512dq -mavx512vl.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace castor::kernels {

struct Avx512 {
  using Vec = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRows[4] = {0, 16, 12, 8};  // 24 of the 32 registers

  static Vec Zero() { return _mm512_setzero_ps(); }
  static Vec Broadcast(float x) { return _mm512_set1_ps(x); }
  static Vec BroadcastFrom(const float* p) { return _mm512_set1_ps(*p); }
  static Vec Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
  static Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec Subtract(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  static Vec Multiply(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec Divide(Vec a, Vec b) { return _mm512_div_ps(a, b); }
  static Vec MultiplyAdd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  static Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  static Vec ZeroBelow(Vec x, Vec of, Vec least) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(of, least, _CMP_NLT_UQ), x);
  }
  static Vec PowerOfTwo(Vec x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
  }

  static Vec LoadHalf(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Vec LoadBrain(const uint16_t* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static Vec LowBrains(Vec x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16));
  }
  static Vec HighBrains(Vec x) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(-65536)));
  }
  static void StoreHalf(uint16_t* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static void StoreBrain(uint16_t* p, Vec x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const __m512i nan = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, nan)));
  }
  static float HalfToFloat(uint16_t bits) { return _cvtsh_ss(bits); }
  static uint16_t FloatToHalf(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

  static void Transpose(Vec rows[kLanes]) {
    Vec a[16];
    for (int i = 0; i < 16; i += 2) {
      a[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
      a[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    Vec b[16];  // b[4 g + c]: in each 128-bit part p, column 4 p + c of rows 4 g .. 4 g + 3
    for (int i = 0; i < 16; i += 4) {
      b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
      b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
      b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int c = 0; c < 4; ++c) {
      const Vec low = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x44);   // parts 0 1 of groups 0 1
      const Vec high = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xee);  // parts 2 3 of groups 0 1
      const Vec low2 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x44);
      const Vec high2 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xee);
      rows[c] = _mm512_shuffle_f32x4(low, low2, 0x88);
      rows[4 + c] = _mm512_shuffle_f32x4(low, low2, 0xdd);
      rows[8 + c] = _mm512_shuffle_f32x4(high, high2, 0x88);
      rows[12 + c] = _mm512_shuffle_f32x4(high, high2, 0xdd);
    }
  }
};

}  // namespace castor::kernels

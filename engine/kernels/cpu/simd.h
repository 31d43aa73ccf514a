// Vectors of floats and of bits for the kernels that are written once for all instruction sets.
// Sums, products and logic are operators of GCC's vector extensions. This file adds what these
// cannot express, and replaces what an instruction does better. `Simd` is the set that a file is
// compiled for.
//
// Kernels are templates over the set, so that the linker cannot use a function compiled for one set
// in place of another's.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "engine/kernels/cpu/cpu_features.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace castor::kernels {

template <typename T, int bytes>
struct VectorOf {
  using Type [[gnu::vector_size(bytes)]] = T;
};

template <int lanes>
struct Vectors {
  static constexpr int kLanes = lanes;
  using Vec = typename VectorOf<float, 4 * lanes>::Type;
  using Words = typename VectorOf<uint32_t, 4 * lanes>::Type;
  using Halves = typename VectorOf<uint16_t, 2 * lanes>::Type;

  static constexpr int kWords = lanes / 2;  // of 64 bits
  using Bits = typename VectorOf<uint64_t, 4 * lanes>::Type;

  // Whether the set has MultiplyAddPairs: lanes of c plus both products of their pairs of bfloat16.
  static constexpr bool kHasPairs = false;

  template <typename To>
  static To LoadAs(const void* p) {
    To x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }

  // ---- floats
  static Vec Zero() { return Vec{}; }
  static Vec Broadcast(float x) { return x - Vec{}; }
  static Vec Load(const float* p) { return LoadAs<Vec>(p); }
  static void Store(float* p, Vec x) { std::memcpy(p, &x, sizeof(x)); }
  static Vec MultiplyAdd(Vec a, Vec b, Vec c) { return a * b + c; }
  // The greater one; `b` where one of them is NaN.
  static Vec Max(Vec a, Vec b) { return a > b ? a : b; }
  // The lesser one, likewise.
  static Vec Min(Vec a, Vec b) { return a < b ? a : b; }
  // 0 where of < least, else x.
  static Vec ZeroBelow(Vec x, Vec of, Vec least) { return of < least ? Vec{} : x; }
  // x where a > b, else y.
  static Vec IfGreater(Vec a, Vec b, Vec x, Vec y) { return a > b ? x : y; }
  // Bit i is set where lane i of a is greater than, or at least, that of b.
  static uint32_t Greater(Vec a, Vec b) { return Mask(a > b); }
  static uint32_t AtLeast(Vec a, Vec b) { return Mask(a >= b); }
  // Sums the first `count` lanes.
  static float Sum(Vec x, int64_t count = lanes) {
    float terms[lanes];
    Store(terms, x);
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += terms[i];
    return sum;
  }
  // Lane i is the sum of rows[i]'s lanes. Uses the rows up.
  template <int width = lanes / 2>
  [[gnu::always_inline]] static Vec SumEach(Vec rows[kLanes]) {
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) {
      rows[i] =
          AddHalves<width>(rows[i], rows[i + width], std::make_integer_sequence<int, lanes>());
    }
    if constexpr (width > 1) return SumEach<width / 2>(rows);
    return rows[0];
  }
  static float Greatest(Vec x) {
    float each[lanes];
    Store(each, x);
    float most = each[0];
    for (const float lane : each) most = lane > most ? lane : most;
    return most;
  }
  // The float whose exponent field is the low bits of x's representation.
  static Vec PowerOfTwo(Vec x) { return std::bit_cast<Vec>(std::bit_cast<Words>(x) << 23); }
  // rows[i][j] becomes rows[j][i].
  static void Transpose(Vec rows[kLanes]) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < i; ++j) {
        const float kept = rows[i][j];
        rows[i][j] = rows[j][i];
        rows[j][i] = kept;
      }
    }
  }

  // ---- bfloat16 and float16: to nearest, ties to even; NaN stays NaN
  static Vec LoadBFloat16(const uint16_t* p) {
    return std::bit_cast<Vec>(__builtin_convertvector(LoadAs<Halves>(p), Words) << 16);
  }
  // The bfloat16 in the low half of each lane, and the one in the high half.
  static Vec LowBFloat16s(Vec x) { return std::bit_cast<Vec>(std::bit_cast<Words>(x) << 16); }
  static Vec HighBFloat16s(Vec x) {
    return std::bit_cast<Vec>(std::bit_cast<Words>(x) & 0xffff0000u);
  }
  // Pairs of bfloat16: a's in the low half, nearest to it, ties to the greater magnitude; b's
  // above.
  static Vec PairOf(Vec a, Vec b) {
    const Words low = (std::bit_cast<Words>(a) + 0x8000u) >> 16;
    return std::bit_cast<Vec>(low | ((std::bit_cast<Words>(b) + 0x8000u) & 0xffff0000u));
  }
  static void StoreBFloat16(uint16_t* p, Vec x) {
    const Words bits = std::bit_cast<Words>(x);
    const Words rounded = (bits + ((bits >> 16) & 1) + 0x7fff) >> 16;
    const Words nan = (bits >> 16) | 0x40;
    const Halves halves = __builtin_convertvector(x == x ? rounded : nan, Halves);
    std::memcpy(p, &halves, sizeof(halves));
  }
  static Vec LoadHalf(const uint16_t* p) {
    Vec x;
    for (int i = 0; i < kLanes; ++i) x[i] = HalfToFloat(p[i]);
    return x;
  }
  static void StoreHalf(uint16_t* p, Vec x) {
    for (int i = 0; i < kLanes; ++i) p[i] = FloatToHalf(x[i]);
  }
  static float HalfToFloat(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
    // Read as a binary32, the same bits are too small by a factor of 2^112; the product is exact,
    // subnormals included.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
  }
  static uint16_t FloatToHalf(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to Inf
    if (magnitude < 0x38800000u) {
      // Subnormal: adding 1/2 puts the result's last place at the sum's last place.
      const float sum = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }

  // ---- bits
  static Bits LoadBits(const uint64_t* p) { return LoadAs<Bits>(p); }
  static void StoreBits(uint64_t* p, Bits x) { std::memcpy(p, &x, sizeof(x)); }
  static Bits Repeat(uint64_t word) { return Bits{} + word; }
  // Sum and carry of three bits.
  static Bits Parity(Bits a, Bits b, Bits c) { return a ^ b ^ c; }
  static Bits Majority(Bits a, Bits b, Bits c) { return (a & b) | ((a ^ b) & c); }
  // The borrow of a - b - borrow.
  static Bits Borrow(Bits a, Bits b, Bits borrow) { return (~a & b) | (~(a ^ b) & borrow); }
  // a where `which` is set, else b.
  static Bits Select(Bits which, Bits a, Bits b) { return b ^ (which & (a ^ b)); }
  // counts[t] += amount where bit t of the code is set.
  static void AddBits(int32_t* counts, uint64_t code, int32_t amount) {
    for (int t = 0; t < 64; ++t) counts[t] += amount & -static_cast<int32_t>((code >> t) & 1);
  }
  // Bit t is set where counts[t] > least.
  static uint64_t CountsAbove(const int32_t* counts, int32_t least) {
    uint64_t code = 0;
    for (int t = 0; t < 64; ++t) code |= uint64_t{counts[t] > least} << t;
    return code;
  }

 private:
  // Sums of lanes that lie `width` apart: a's where the lane has no such bit, and b's elsewhere.
  template <int width, int... lane>
  static Vec AddHalves(Vec a, Vec b, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(a, b, (lane & width ? lanes + lane : lane)...) +
           __builtin_shufflevector(a, b, (lane & width ? lanes + lane - width : lane + width)...);
  }

  template <typename Truths>  // 0 or -1 in each lane
  static uint32_t Mask(Truths truths) {
    uint32_t mask = 0;
    for (int i = 0; i < kLanes; ++i) mask |= (truths[i] & 1u) << i;
    return mask;
  }
};

// kRows: rows of accumulators with 1, 2 or 3 vectors.
#if defined(__AVX512F__)

// With BW, DQ and VL. GCC 12 makes several instructions of a maximum or a comparison written as
// above.
struct Avx512 : Vectors<16> {
  static constexpr char kBackend[] = "cpu-avx512";
  static bool RunsHere() { return HasAvx512(); }
  static constexpr int kRows[4] = {0, 16, 12, 8};  // 24 of the 32 registers

  static Vec MultiplyAdd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  static Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  static Vec ZeroBelow(Vec x, Vec of, Vec least) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(of, least, _CMP_NLT_UQ), x);
  }
  static Vec IfGreater(Vec a, Vec b, Vec x, Vec y) {
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), x);
  }
  static uint32_t Greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static uint32_t AtLeast(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }

  static Vec LoadBFloat16(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadAs<__m256i>(p)), 16));
  }
  static Vec LoadHalf(const uint16_t* p) { return _mm512_cvtph_ps(LoadAs<__m256i>(p)); }
  static void StoreHalf(uint16_t* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
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

  template <int table>
  static Bits Logic(Bits a, Bits b, Bits c) {
    return reinterpret_cast<Bits>(_mm512_ternarylogic_epi64(reinterpret_cast<__m512i>(a),
                                                            reinterpret_cast<__m512i>(b),
                                                            reinterpret_cast<__m512i>(c), table));
  }
  static Bits Parity(Bits a, Bits b, Bits c) { return Logic<0x96>(a, b, c); }
  static Bits Majority(Bits a, Bits b, Bits c) { return Logic<0xe8>(a, b, c); }
  static Bits Borrow(Bits a, Bits b, Bits borrow) { return Logic<0x8e>(a, b, borrow); }
  static Bits Select(Bits which, Bits a, Bits b) { return Logic<0xca>(which, a, b); }
  static void AddBits(int32_t* counts, uint64_t code, int32_t amount) {
    const __m512i add = _mm512_set1_epi32(amount);
    for (int i = 0; i < 4; ++i) {
      const auto bits = static_cast<__mmask16>(code >> (16 * i));
      const __m512i before = _mm512_loadu_si512(counts + 16 * i);
      _mm512_storeu_si512(counts + 16 * i, _mm512_mask_add_epi32(before, bits, before, add));
    }
  }
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
using Simd = Avx512;
#define CASTOR_SIMD_NAME(name) name##Avx512

#elif defined(__AVX2__)

// With FMA and F16C.
struct Avx2 : Vectors<8> {
  static constexpr char kBackend[] = "cpu-avx2";
  static bool RunsHere() { return HasAvx2(); }
  static constexpr int kRows[4] = {0, 12, 6, 4};  // 12 of the 16 registers

  static Vec MultiplyAdd(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  static Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  static Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  static uint32_t Greater(Vec a, Vec b) { return Signs(a > b); }
  static uint32_t AtLeast(Vec a, Vec b) { return Signs(a >= b); }

  static Vec LoadBFloat16(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadAs<__m128i>(p)), 16));
  }
  static Vec LoadHalf(const uint16_t* p) { return _mm256_cvtph_ps(LoadAs<__m128i>(p)); }
  static void StoreHalf(uint16_t* p, Vec x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static float HalfToFloat(uint16_t bits) { return _cvtsh_ss(bits); }
  static uint16_t FloatToHalf(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

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
          _mm256_cmpgt_epi32(LoadAs<__m256i>(counts + 8 * i), _mm256_set1_epi32(least));
      code |= uint64_t{Signs(above)} << (8 * i);
    }
    return code;
  }

 private:
  template <typename Truths>
  static uint32_t Signs(Truths truths) {
    return static_cast<uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(truths)));
  }
};
using Simd = Avx2;
#define CASTOR_SIMD_NAME(name) name##Avx2

#else

// Whatever instructions the compiler's baseline has.
struct Portable : Vectors<4> {
  static constexpr char kBackend[] = "cpu-portable";
  static bool RunsHere() { return true; }
  static constexpr int kRows[4] = {0, 8, 4, 3};
};
using Simd = Portable;
#define CASTOR_SIMD_NAME(name) name##Portable

#endif

}  // namespace castor::kernels

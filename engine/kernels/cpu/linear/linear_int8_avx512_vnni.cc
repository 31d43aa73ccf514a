#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/linear.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {
namespace {

// A vector type of its own, so that nothing compiled for this set is used in place of another's.
struct Avx512Vnni : Avx512 {};

struct Integers {
  using Vec = __m512i;
  static constexpr int32_t kMostInput = 255;
  static constexpr int kWords = 1;
  static constexpr double (*kExcess)(const int8_t*, int64_t) = nullptr;
  static constexpr int kTileRows = Avx512::kRows[2];

  static Vec Broadcast(int32_t x) { return _mm512_set1_epi32(x); }
  static Vec Load(const void* p) { return _mm512_loadu_si512(p); }
  static void Store(void* p, Vec x) { _mm512_storeu_si512(p, x); }
  static Vec Subtract(Vec a, Vec b) { return _mm512_sub_epi32(a, b); }
  static Vec Multiply(Vec a, Vec b) { return _mm512_mullo_epi32(a, b); }
  static __m512 ToFloat(Vec x) { return _mm512_cvtepi32_ps(x); }
  static void StoreBytes(uint8_t* p, const __m512 (&x)[4]) {
    for (int v = 0; v < 4; ++v) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p) + v,
                       _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x[v])));
    }
  }

  // In assembly, since GCC 12 spills the sums of the intrinsic, which halves the speed.
  static void MultiplyAddBytes(const Vec (&x)[kWords], const Vec (&w)[kWords], Vec& sum) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x[0]), "v"(w[0]));
  }
};

}  // namespace

const LinearKernel kLinearInt8Avx512Vnni =
    MakeLinearKernel<Avx512Vnni, Int8Steps<Avx512Vnni, Integers>>("cpu-avx512-vnni",
                                                                  &HasAvx512Vnni);

}  // namespace castor::kernels

#include <algorithm>
#include <cstdint>

#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/linear.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {
namespace {

// A sum in 16 bits is of the first or the second pairs of two words. With inputs from 0 to
// `most_input`, it is farthest from 0 where those of negative weights, or of positive, are 0.
template <int32_t most_input>
double MostInSixteenBits(const int8_t* weights, int64_t in) {
  int32_t most = 0;
  for (int64_t step = 0; step < in; step += 8) {
    for (int64_t pair = step; pair < step + 4; pair += 2) {
      int32_t above = 0, below = 0;
      for (const int64_t i : {pair, pair + 1, pair + 4, pair + 5}) {
        if (i >= in) continue;
        (weights[i] > 0 ? above : below) += weights[i];
      }
      most = std::max({most, above, -below});
    }
  }
  return most * (most_input / 32767.0);
}

struct Integers {
  using Vec = __m256i;
  // Sums of two products stay within the 16 bits that vpmaddubsw has for them: 2 * 127 * 127.
  // Inputs of 8 bits would have to be widened first, which takes 1.6 times as long.
  static constexpr int32_t kMostInput = 127;
  // Four products of two words are added in 16 bits before they are widened, which takes as long as
  // a product.
  static constexpr int kWords = 2;
  static constexpr double (*kExcess)(const int8_t*, int64_t) = &MostInSixteenBits<kMostInput>;
  // Weights, inputs and ones leave registers for no more rows.
  static constexpr int kTileRows = 4;

  static Vec Broadcast(int32_t x) { return _mm256_set1_epi32(x); }
  static Vec Load(const void* p) { return _mm256_loadu_si256(static_cast<const Vec*>(p)); }
  static void Store(void* p, Vec x) { _mm256_storeu_si256(static_cast<Vec*>(p), x); }
  static Vec Subtract(Vec a, Vec b) { return _mm256_sub_epi32(a, b); }
  static Vec Multiply(Vec a, Vec b) { return _mm256_mullo_epi32(a, b); }
  static __m256 ToFloat(Vec x) { return _mm256_cvtepi32_ps(x); }
  static void StoreBytes(uint8_t* p, const __m256 (&x)[4]) {
    const Vec low = _mm256_packs_epi32(_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1]));
    const Vec high = _mm256_packs_epi32(_mm256_cvtps_epi32(x[2]), _mm256_cvtps_epi32(x[3]));
    // Fours of bytes, of the four vectors' first halves and then of their second.
    const Vec bytes = _mm256_min_epu8(_mm256_packus_epi16(low, high), _mm256_set1_epi8(kMostInput));
    Store(p, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  }

  static void MultiplyAddBytes(const Vec (&x)[kWords], const Vec (&w)[kWords], Vec& sum) {
    const Vec fours =
        _mm256_add_epi16(_mm256_maddubs_epi16(x[0], w[0]), _mm256_maddubs_epi16(x[1], w[1]));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(fours, _mm256_set1_epi16(1)));
  }
};

}  // namespace

const LinearKernel kLinearInt8Avx2 =
    MakeLinearKernel<Avx2, Int8Steps<Avx2, Integers>>("cpu-avx2", &HasAvx2);

}  // namespace castor::kernels

#include "engine/kernels/pool_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace castor::kernels::cpu {
namespace {

// IEEE half to float, exactly: shift the fields into place, and let a multiplication by 2^112
// correct the exponent's bias, subnormals included.
float FromHalf(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  const float scale = std::bit_cast<float>(uint32_t{239} << 23);  // 2^112
  uint32_t value = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * scale);
  if ((bits & 0x7c00) == 0x7c00) value = magnitude | 0x7f800000;  // infinity and NaN
  return std::bit_cast<float>(value | static_cast<uint32_t>(bits & 0x8000) << 16);
}

float Load(const void* rows, Element element, int64_t index) {
  if (element == Element::kFloat32) return static_cast<const float*>(rows)[index];
  const uint16_t bits = static_cast<const uint16_t*>(rows)[index];
  return element == Element::kFloat16 ? FromHalf(bits)
                                      : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace

void Run(const PoolRows& p) {
  for (int64_t s = 0; s < p.sequences; ++s) {
    const int64_t first = p.offsets[s];
    const int64_t tokens = p.mean ? p.offsets[s + 1] - first : 1;
    float* output = p.output + s * p.dimensions;
    double squares = 0;
    for (int64_t d = 0; d < p.dimensions; ++d) {
      double sum = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        sum += Load(p.rows, p.element, (first + t) * p.row_stride + d);
      }
      output[d] = static_cast<float>(sum / static_cast<double>(tokens));
      squares += static_cast<double>(output[d]) * output[d];
    }
    if (!p.normalize) continue;
    const double norm = std::max(std::sqrt(squares), static_cast<double>(kMinNorm));
    for (int64_t d = 0; d < p.dimensions; ++d) {
      output[d] = static_cast<float>(output[d] / norm);
    }
  }
}

void Run(const FlagNonFinite& p) {
  for (int64_t s = 0; s < p.sequences; ++s) {
    bool finite = true;
    for (int64_t t = p.offsets[s]; t < p.offsets[s + 1]; ++t) {
      for (int64_t d = 0; d < p.columns; ++d) {
        finite = finite && std::isfinite(Load(p.rows, p.element, t * p.row_stride + d));
      }
    }
    p.flags[s] = finite ? 0 : 1;
  }
}

}  // namespace castor::kernels::cpu

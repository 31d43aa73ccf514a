#include "engine/automatic/fidelity.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/kernels/philox.h"

namespace castor::attention {
namespace {

// The rows may lie at any address.
template <typename Element>
double ValueAt(const std::byte* rows, int64_t index) {
  Element element;
  std::memcpy(&element, rows + index * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
  return static_cast<float>(element);
}

template <typename Element>
double RelativeErrorOf(const std::byte* approximate, int64_t stride, int64_t row,
                       std::span<const int32_t> chosen, const std::byte* exact) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double error = 0;
  double norm = 0;
  int64_t at = 0;
  for (const int32_t token : chosen) {
    for (int64_t e = 0; e < row; ++e, ++at) {
      const double expected = ValueAt<Element>(exact, at);
      const double difference = ValueAt<Element>(approximate, token * stride + e) - expected;
      error += difference * difference;
      norm += expected * expected;
    }
  }
  if (error == 0) return 0;
  const double relative = std::sqrt(error / norm);
  return std::isfinite(relative) ? relative : kInfinite;
}

}  // namespace

uint64_t SeedOf(const Kernel& kernel) {
  const Clustered* const clustering = ClusteringOf(kernel);
  return clustering == nullptr ? 0 : clustering->seed;
}

FidelityRows DrawFidelityRows(uint64_t seed, int32_t rows, std::span<const int32_t> cu_seqlens_q) {
  FidelityRows drawn;
  drawn.cu_seqlens.reserve(cu_seqlens_q.size());
  drawn.cu_seqlens.push_back(0);
  for (size_t b = 0; b + 1 < cu_seqlens_q.size(); ++b) {
    const int64_t length = cu_seqlens_q[b + 1] - cu_seqlens_q[b];
    const int64_t strata = std::min<int64_t>(rows, length);
    for (int64_t r = 0; r < strata; ++r) {
      const int64_t lo = r * length / strata;
      const int64_t hi = (r + 1) * length / strata;
      const kernels::PhiloxBlock block =
          kernels::Philox(kernels::RandomStream::kFidelityRow, static_cast<uint32_t>(r),
                          static_cast<uint32_t>(b), seed);
      const auto offset = (uint64_t{block[0]} * static_cast<uint64_t>(hi - lo)) >> 32;
      drawn.tokens.push_back(static_cast<int32_t>(cu_seqlens_q[b] + lo) +
                             static_cast<int32_t>(offset));
    }
    drawn.cu_seqlens.push_back(static_cast<int32_t>(drawn.tokens.size()));
  }
  return drawn;
}

void GatherRows(DType dtype, const std::byte* tokens, int64_t stride, int64_t row,
                std::span<const int32_t> chosen, std::byte* out) {
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  for (const int32_t token : chosen) {
    std::memcpy(out, tokens + token * stride * size, static_cast<size_t>(row * size));
    out += row * size;
  }
}

double RelativeError(DType dtype, const std::byte* approximate, int64_t stride, int64_t row,
                     std::span<const int32_t> chosen, const std::byte* exact) {
  switch (dtype) {
    case DType::kFloat16:
      return RelativeErrorOf<c10::Half>(approximate, stride, row, chosen, exact);
    case DType::kBFloat16:
      return RelativeErrorOf<c10::BFloat16>(approximate, stride, row, chosen, exact);
    default:
      return RelativeErrorOf<float>(approximate, stride, row, chosen, exact);
  }
}

}  // namespace castor::attention

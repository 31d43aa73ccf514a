#include "engine/attention/finite.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/base/error.h"

namespace castor::attention {
namespace {

// A number is NaN or Inf when all bits of its exponent are set.
template <typename Bits>
bool IsNonFinite(Bits bits, Bits exponent) {
  return (bits & exponent) == exponent;
}

// Scans a block without an early exit, so that the compiler vectorises the loop. Looks at single
// elements only in the block where it found something.
template <typename Bits>
std::optional<size_t> Find(std::span<const std::byte> data, Bits exponent) {
  constexpr size_t kBlock = 4096;  // elements
  const auto* elements = reinterpret_cast<const Bits*>(data.data());
  const size_t count = data.size() / sizeof(Bits);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t end = std::min(count, begin + kBlock);
    Bits found = 0;
    for (size_t i = begin; i < end; ++i) {
      found |= static_cast<Bits>(IsNonFinite(elements[i], exponent));
    }
    if (found == 0) continue;
    const Bits* first = std::find_if(elements + begin, elements + end,
                                     [=](Bits bits) { return IsNonFinite(bits, exponent); });
    return static_cast<size_t>(first - elements);
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> FindNonFinite(DType dtype, std::span<const std::byte> data) {
  switch (dtype) {
    case DType::kFloat32:
      return Find<uint32_t>(data, 0x7f800000u);
    case DType::kFloat16:
      return Find<uint16_t>(data, 0x7c00u);
    case DType::kBFloat16:
      return Find<uint16_t>(data, 0x7f80u);
    case DType::kInt32:
    case DType::kInt64:
    case DType::kInt8:
    case DType::kUInt8:
      return std::nullopt;
  }
  return std::nullopt;
}

absl::Status CheckFinite(DType dtype, std::span<const std::byte> data, std::string_view field) {
  const std::optional<size_t> found = FindNonFinite(dtype, data);
  if (!found.has_value()) return absl::OkStatus();
  return InvalidField(Reason::kNonFiniteInput, field,
                      "element " + std::to_string(*found) + " is NaN or Inf");
}

}  // namespace castor::attention

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

// Looks at a block with no exit inside, which the compiler vectorises, and at single elements only
// in the block where it found something.
template <typename Bits>
absl::Status Check(std::span<const std::byte> data, Bits exponent, std::string_view field) {
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
    return InvalidField(Reason::kNonFiniteInput, field,
                        "element " + std::to_string(first - elements) + " is NaN or Inf");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFinite(DType dtype, std::span<const std::byte> data, std::string_view field) {
  switch (dtype) {
    case DType::kFloat32:
      return Check<uint32_t>(data, 0x7f800000u, field);
    case DType::kFloat16:
      return Check<uint16_t>(data, 0x7c00u, field);
    case DType::kBFloat16:
      return Check<uint16_t>(data, 0x7f80u, field);
    case DType::kInt32:
    case DType::kInt64:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace castor::attention

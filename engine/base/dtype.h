// Element types of tensors, and arithmetic on shapes that detects overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace castor {

enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16, kInt32, kInt64, kInt8, kUInt8 };

struct DTypeTraits {
  DType dtype;
  size_t size;            // bytes of an element
  std::string_view name;  // on the wire
  bool floating;
};
inline constexpr DTypeTraits kDTypes[] = {
    {DType::kFloat32, 4, "FLOAT32", true},   {DType::kFloat16, 2, "FLOAT16", true},
    {DType::kBFloat16, 2, "BFLOAT16", true}, {DType::kInt32, 4, "INT32", false},
    {DType::kInt64, 8, "INT64", false},      {DType::kInt8, 1, "INT8", false},
    {DType::kUInt8, 1, "UINT8", false},
};

// The dtypes in which attention is computed.
inline constexpr DType kFloatingDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

constexpr const DTypeTraits& TraitsOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }
constexpr size_t SizeOf(DType dtype) { return TraitsOf(dtype).size; }
constexpr std::string_view NameOf(DType dtype) { return TraitsOf(dtype).name; }
constexpr bool IsFloating(DType dtype) { return TraitsOf(dtype).floating; }

static_assert([] {
  size_t floating = 0;
  for (size_t i = 0; i < std::size(kDTypes); ++i) {
    if (kDTypes[i].dtype != static_cast<DType>(i)) return false;
    floating += kDTypes[i].floating;
  }
  return kDTypes[std::size(kDTypes) - 1].dtype == DType::kUInt8 &&
         floating == std::size(kFloatingDTypes);
}());

// a * b, a + b; nullopt if the result exceeds int64 or an operand is negative.
std::optional<int64_t> CheckedMultiply(int64_t a, int64_t b);
std::optional<int64_t> CheckedAdd(int64_t a, int64_t b);

// The product of the dimensions (1 for a scalar); nullopt on overflow or a negative dimension.
std::optional<int64_t> NumElements(std::span<const int64_t> shape);

// NumElements times the element size.
std::optional<int64_t> NumBytes(DType dtype, std::span<const int64_t> shape);

// "[3, 8, 64]".
std::string ShapeString(std::span<const int64_t> shape);

}  // namespace castor

// Element types of tensors, and arithmetic on shapes that cannot overflow silently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace castor {

enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16, kInt32, kInt64 };

constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt64:
      return 8;
  }
  return 0;
}

// The wire's name of the type, such as "FLOAT32".
constexpr std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "FLOAT32";
    case DType::kFloat16:
      return "FLOAT16";
    case DType::kBFloat16:
      return "BFLOAT16";
    case DType::kInt32:
      return "INT32";
    case DType::kInt64:
      return "INT64";
  }
  return "?";
}

constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// a * b, a + b; nullopt when the result leaves int64 or an operand is negative.
std::optional<int64_t> CheckedMultiply(int64_t a, int64_t b);
std::optional<int64_t> CheckedAdd(int64_t a, int64_t b);

// The product of the dimensions (1 for a scalar); nullopt on overflow or a negative dimension.
std::optional<int64_t> NumElements(std::span<const int64_t> shape);

// NumElements times the element size.
std::optional<int64_t> NumBytes(DType dtype, std::span<const int64_t> shape);

// "[3, 8, 64]".
std::string ShapeString(std::span<const int64_t> shape);

}  // namespace castor

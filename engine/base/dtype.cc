#include "engine/base/dtype.h"

namespace castor {

std::optional<int64_t> CheckedMultiply(int64_t a, int64_t b) {
  int64_t product;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t sum;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

std::optional<int64_t> NumElements(std::span<const int64_t> shape) {
  std::optional<int64_t> count = 1;
  for (int64_t dimension : shape) {
    count = CheckedMultiply(*count, dimension);
    if (!count) return std::nullopt;
  }
  return count;
}

std::optional<int64_t> NumBytes(DType dtype, std::span<const int64_t> shape) {
  const std::optional<int64_t> count = NumElements(shape);
  if (!count) return std::nullopt;
  return CheckedMultiply(*count, static_cast<int64_t>(SizeOf(dtype)));
}

std::string ShapeString(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace castor

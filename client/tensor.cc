#include "client/tensor.h"

#include <bit>
#include <cstring>

namespace castor::client {

static_assert(std::endian::native == std::endian::little, "tensors travel little-endian");

size_t SizeOf(v1::DataType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
    case v1::INT32:
      return 4;
    case v1::FLOAT16:
    case v1::BFLOAT16:
      return 2;
    case v1::INT64:
      return 8;
    case v1::INT8:
    case v1::UINT8:
      return 1;
    default:
      return 0;
  }
}

std::optional<int64_t> NumElements(std::span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(product, dimension, &product)) return std::nullopt;
  }
  return product;
}

std::vector<int64_t> ShapeOf(const v1::Tensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

std::string ShapeString(const v1::Tensor& tensor) {
  std::string text = "[";
  for (const int64_t dimension : tensor.shape()) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  }
  return text + "]";
}

uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity: 65520 and above
  if (magnitude < 0x38800000) {                       // below 2^-14: subnormal or zero
    // Adding 0.5 leaves the value's 2^-24 units in the low bits, rounded to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000);
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return sign | static_cast<uint16_t>((magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  if (magnitude < 0x400) {  // subnormal: units of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
}

uint16_t FloatToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);  // NaN
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

v1::Tensor MakeTensor(std::span<const float> values, std::span<const int64_t> shape,
                      v1::DataType dtype) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  std::string& raw = *tensor.mutable_raw();
  raw.resize(values.size() * SizeOf(dtype));
  if (dtype == v1::FLOAT32) {
    if (!values.empty()) std::memcpy(raw.data(), values.data(), raw.size());
    return tensor;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits =
        dtype == v1::FLOAT16 ? FloatToHalf(values[i]) : FloatToBFloat16(values[i]);
    std::memcpy(raw.data() + 2 * i, &bits, 2);
  }
  return tensor;
}

std::optional<std::vector<float>> ToFloats(const v1::Tensor& tensor) {
  const std::string& raw = tensor.raw();
  const size_t size = SizeOf(tensor.dtype());
  const auto elements =
      NumElements({tensor.shape().data(), static_cast<size_t>(tensor.shape_size())});
  const bool floating = tensor.dtype() == v1::FLOAT32 || tensor.dtype() == v1::FLOAT16 ||
                        tensor.dtype() == v1::BFLOAT16;
  if (!floating || !elements || raw.size() % size != 0 ||
      raw.size() / size != static_cast<size_t>(*elements)) {
    return std::nullopt;
  }
  std::vector<float> values(raw.size() / size);
  if (tensor.dtype() == v1::FLOAT32) {
    if (!values.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, raw.data() + 2 * i, 2);
    values[i] = tensor.dtype() == v1::FLOAT16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
  }
  return values;
}

}  // namespace castor::client

// Conversion between the wire's tensors and plain vectors. Pure functions. Assumes a little-endian
// machine, as the wire is little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "castor/v1/tensor.pb.h"

namespace castor::client {

// Bytes of one element; 0 for unknown types.
size_t SizeOf(v1::DataType dtype);

// The product of the dimensions; nullopt on overflow or where one is negative.
std::optional<int64_t> NumElements(std::span<const int64_t> shape);
std::vector<int64_t> ShapeOf(const v1::Tensor& tensor);
std::string ShapeString(const v1::Tensor& tensor);  // "[128, 8, 64]"

// IEEE 754 binary16 and bfloat16; to them by rounding to nearest, ties to even. NaN stays NaN.
uint16_t FloatToHalf(float value);
float HalfToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);
float BFloat16ToFloat(uint16_t bits);

// A tensor of `dtype` (FLOAT32, FLOAT16 or BFLOAT16) from row-major values, as many as `shape`
// says.
v1::Tensor MakeTensor(std::span<const float> values, std::span<const int64_t> shape,
                      v1::DataType dtype = v1::FLOAT32);
inline v1::Tensor MakeTensor(std::span<const float> values, std::initializer_list<int64_t> shape,
                             v1::DataType dtype = v1::FLOAT32) {
  return MakeTensor(values, std::span<const int64_t>(shape.begin(), shape.size()), dtype);
}

// The values of a FLOAT32, FLOAT16 or BFLOAT16 tensor; nullopt for other types, and when the bytes
// do not fit the shape.
std::optional<std::vector<float>> ToFloats(const v1::Tensor& tensor);

}  // namespace castor::client

// Converts between the wire's tensors and plain vectors. Pure functions. Requires a little-endian
// machine, since the wire is little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "castor/v1/attention.pb.h"
#include "castor/v1/tensor.pb.h"

namespace castor::client {

// Bytes of one element; 0 for unknown types.
size_t SizeOf(v1::DataType dtype);

// The product of the dimensions; nullopt on overflow or where one is negative.
std::optional<int64_t> NumElements(std::span<const int64_t> shape);
std::vector<int64_t> ShapeOf(const v1::Tensor& tensor);
std::string ShapeString(const v1::Tensor& tensor);  // "[128, 8, 64]"

// Conversions of IEEE 754 binary16 and bfloat16; they round to nearest, ties to even. NaN stays
// NaN.
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

// Merges answers over disjoint sets of keys into the answer over all of them: for keys that are
// sharded over servers, or cached in several places.
//
// For each row, with L_p the log-sum-exp of part p, m = max_p L_p and w_p = exp(L_p - m):
//
//   output = sum_p w_p output_p / sum_p w_p      log_sum_exp = m + ln sum_p w_p
//
// A part in which the row sees no key has L_p = -Inf (flash-attn 2: +Inf) and adds nothing,
// whatever its output holds; if all parts are such, the row is zeros and -Inf. NaN gives NaN. Sums
// are in double precision and rounded once to the outputs' dtype, so the order of the parts, and
// merging in stages, change results only by rounding.
//
// Reads `output` (FLOAT32, FLOAT16 or BFLOAT16, as `raw`) and `log_sum_exp` of each part, which
// have the same dtypes and shapes; returns these two. INVALID_ARGUMENT names the part that does not
// fit, counted from 0. Any thread.
absl::StatusOr<v1::AttendResponse> MergeAttention(std::span<const v1::AttendResponse> parts);

}  // namespace castor::client

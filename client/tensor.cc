#include "client/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

uint16_t FloatToHalf(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }

float HalfToFloat(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }

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

namespace {

absl::Status Misfit(size_t part, const std::string& problem) {
  return absl::InvalidArgumentError("part " + std::to_string(part) + ": " + problem);
}

std::string Describe(const v1::Tensor& tensor) {
  return ShapeString(tensor) + " " + v1::DataType_Name(tensor.dtype());
}

// OK if the part has the first one's types and shapes, and its output one dimension more than its
// log-sum-exp.
absl::Status Check(std::span<const v1::AttendResponse> parts, size_t p) {
  const v1::Tensor& output = parts[p].output();
  const v1::Tensor& log_sum_exp = parts[p].log_sum_exp();
  if (!parts[p].has_log_sum_exp()) return Misfit(p, "has no log_sum_exp");
  std::vector<int64_t> rows = ShapeOf(output);
  if (rows.empty()) return Misfit(p, "output has no dimensions");
  rows.pop_back();
  if (log_sum_exp.dtype() != v1::FLOAT32 || ShapeOf(log_sum_exp) != rows) {
    return Misfit(p, "log_sum_exp " + Describe(log_sum_exp) + " does not belong to output " +
                         Describe(output));
  }
  const v1::Tensor& first = parts[0].output();
  if (output.dtype() != first.dtype() || ShapeOf(output) != ShapeOf(first)) {
    return Misfit(p, "output " + Describe(output) + " is not like part 0's, " + Describe(first));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::AttendResponse> MergeAttention(std::span<const v1::AttendResponse> parts) {
  if (parts.empty()) return absl::InvalidArgumentError("there are no parts");
  std::vector<std::vector<float>> logs;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (absl::Status fits = Check(parts, p); !fits.ok()) return fits;
    std::optional<std::vector<float>> log = ToFloats(parts[p].log_sum_exp());
    if (!log) return Misfit(p, "the values of log_sum_exp do not fit its shape");
    std::replace(log->begin(), log->end(), INFINITY,
                 -INFINITY);  // flash-attn 2's rows without keys
    logs.push_back(*std::move(log));
  }
  const size_t rows = logs[0].size();
  std::vector<double> maxima(rows, -INFINITY);
  for (const std::vector<float>& log : logs) {
    for (size_t i = 0; i < rows; ++i) {
      if (log[i] > maxima[i]) maxima[i] = log[i];
    }
  }

  std::vector<double> weights(rows);
  std::vector<double> sums;
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::optional<std::vector<float>> output = ToFloats(parts[p].output());
    if (!output) return Misfit(p, "output has no floating-point values that fit its shape");
    if (sums.empty()) sums.resize(output->size());
    const size_t dim = rows == 0 ? 0 : output->size() / rows;
    for (size_t i = 0; i < rows; ++i) {
      if (logs[p][i] == -INFINITY) continue;
      const double weight = std::exp(logs[p][i] - maxima[i]);  // NaN for NaN
      weights[i] += weight;
      for (size_t e = i * dim; e < (i + 1) * dim; ++e) sums[e] += weight * (*output)[e];
    }
  }

  const size_t dim = rows == 0 ? 0 : sums.size() / rows;
  std::vector<float> output(sums.size());
  for (size_t i = 0; i < rows; ++i) {
    logs[0][i] = static_cast<float>(maxima[i] + std::log(weights[i]));
    if (weights[i] == 0) continue;  // zeros
    for (size_t e = i * dim; e < (i + 1) * dim; ++e) {
      output[e] = static_cast<float>(sums[e] / weights[i]);
    }
  }
  v1::AttendResponse merged;
  const v1::Tensor& like = parts[0].output();
  *merged.mutable_output() = MakeTensor(output, ShapeOf(like), like.dtype());
  *merged.mutable_log_sum_exp() = MakeTensor(logs[0], ShapeOf(parts[0].log_sum_exp()));
  return merged;
}

}  // namespace castor::client

#include "engine/encoder/text/output_types.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/attention/finite.h"
#include "engine/base/error.h"
#include "engine/tensor_reader.h"

namespace castor::encoder {
namespace {

constexpr char kField[] = "ranges";
constexpr int64_t kBits = 8;  // in a byte

// Maps each range to 256 steps, rounded down. Values outside a range become its ends.
void ToSteps(std::span<const float> rows, std::span<const float> ranges, int offset, uint8_t* out) {
  constexpr float kLast = 255;
  const size_t dimensions = ranges.size() / 2;
  for (size_t i = 0; i < rows.size(); ++i) {
    const float least = ranges[i % dimensions];
    const float step = (ranges[dimensions + i % dimensions] - least) / kLast;
    const float steps = std::floor((rows[i] - least) / (step == 0 ? 1 : step));
    out[i] = static_cast<uint8_t>(static_cast<int>(std::clamp(steps, 0.0F, kLast)) + offset);
  }
}

// The first dimension is the highest bit of the first byte. Zeros fill the last byte.
void ToBits(std::span<const float> rows, int64_t dimensions, uint8_t flipped, uint8_t* out) {
  const int64_t width = (dimensions + kBits - 1) / kBits;
  const float* row = rows.data();
  for (; row != rows.data() + rows.size(); row += dimensions) {
    std::fill_n(out, width, flipped);
    for (int64_t d = 0; d < dimensions; ++d) {
      if (row[d] > 0) out[d / kBits] ^= static_cast<uint8_t>(0x80 >> (d % kBits));
    }
    out += width;
  }
}

}  // namespace

OutputType TypeOf(const EncodeRequest& request, EncodeOutput output) {
  return HasVectors(output) ? request.output_type : OutputType::kFloat32;
}

bool NeedsRanges(OutputType type) {
  return type == OutputType::kInt8 || type == OutputType::kUInt8;
}

DType DTypeOf(OutputType type) {
  switch (type) {
    case OutputType::kFloat32:
      return DType::kFloat32;
    case OutputType::kFloat16:
      return DType::kFloat16;
    case OutputType::kBFloat16:
      return DType::kBFloat16;
    case OutputType::kInt8:
    case OutputType::kBinary:
      return DType::kInt8;
    case OutputType::kUInt8:
    case OutputType::kUBinary:
      return DType::kUInt8;
  }
  return DType::kFloat32;
}

int64_t TypedWidth(OutputType type, int64_t dimensions) {
  const bool bits = type == OutputType::kBinary || type == OutputType::kUBinary;
  return bits ? (dimensions + kBits - 1) / kBits : dimensions;
}

int64_t TypedRowBytes(OutputType type, int64_t dimensions) {
  if (type == OutputType::kFloat32) return 0;
  return TypedWidth(type, dimensions) * static_cast<int64_t>(SizeOf(DTypeOf(type)));
}

absl::StatusOr<std::vector<float>> ReadRanges(const EncodeRequest& request, const ModelInfo& info) {
  if (!request.ranges.has_value()) return std::vector<float>();
  const TensorInput& ranges = *request.ranges;
  if (!NeedsRanges(request.output_type)) {
    return InvalidField(kField, "need output_type INT8 or UINT8");
  }
  if (ranges.dtype != DType::kFloat32) {
    return InvalidField(absl::StrCat(kField, ".dtype"), "must be FLOAT32");
  }
  for (const EncodeOutput output : OutputsOf(request, info)) {
    const int64_t dimensions = DimensionsOf(request, info, output);
    if (HasVectors(output) && ranges.shape != std::vector<int64_t>{2, dimensions}) {
      return InvalidField(
          absl::StrCat(kField, ".shape"),
          absl::StrCat("must be [2, ", dimensions, "] for ", std::string(OutputName(output)),
                       ", is ", ShapeString(ranges.shape)));
    }
  }
  const int64_t bytes = *NumBytes(ranges.dtype, ranges.shape);
  if (ranges.size_bytes() != bytes) {
    return InvalidField(DataField(ranges, kField), absl::StrCat("has ", ranges.size_bytes(),
                                                                " bytes, the shape needs ", bytes));
  }
  std::vector<float> bounds(static_cast<size_t>(bytes) / sizeof(float));
  const std::span<std::byte> raw = std::as_writable_bytes(std::span(bounds));
  absl::Status status = TensorReader(ranges, kField).Read(raw.size(), raw.data());
  if (status.ok()) status = attention::CheckFinite(DType::kFloat32, raw, kField);
  if (!status.ok()) return status;
  const size_t dimensions = bounds.size() / 2;
  for (size_t d = 0; d < dimensions; ++d) {
    const float lower = bounds[d], upper = bounds[dimensions + d];
    if (lower > upper) {
      return InvalidField(kField, absl::StrCat("dimension ", d, ": lower bound ", lower,
                                               " exceeds upper bound ", upper));
    }
    if (!std::isfinite(upper - lower)) {
      return InvalidField(kField, absl::StrCat("dimension ", d, ": bounds ", lower, " and ", upper,
                                               " are too far apart for float32"));
    }
  }
  return bounds;
}

void FindRanges(std::span<const float> rows, std::span<float> ranges) {
  const size_t dimensions = ranges.size() / 2;
  std::copy_n(rows.begin(), dimensions, ranges.begin());
  std::copy_n(rows.begin(), dimensions, ranges.begin() + static_cast<int64_t>(dimensions));
  for (size_t i = dimensions; i < rows.size(); ++i) {
    float& least = ranges[i % dimensions];
    float& greatest = ranges[dimensions + i % dimensions];
    least = std::min(least, rows[i]);
    greatest = std::max(greatest, rows[i]);
  }
}

void ConvertRows(OutputType type, std::span<const float> rows, int64_t dimensions,
                 std::span<const float> ranges, std::byte* out) {
  auto* const bytes = reinterpret_cast<uint8_t*>(out);
  constexpr int kToSigned = 128;
  switch (type) {
    case OutputType::kFloat32:
      std::copy(rows.begin(), rows.end(), reinterpret_cast<float*>(out));
      return;
    case OutputType::kFloat16:
      std::copy(rows.begin(), rows.end(), reinterpret_cast<c10::Half*>(out));
      return;
    case OutputType::kBFloat16:
      std::copy(rows.begin(), rows.end(), reinterpret_cast<c10::BFloat16*>(out));
      return;
    case OutputType::kInt8:
    case OutputType::kUInt8:
      ToSteps(rows, ranges, type == OutputType::kInt8 ? -kToSigned : 0, bytes);
      return;
    case OutputType::kBinary:
    case OutputType::kUBinary:
      ToBits(rows, dimensions, type == OutputType::kBinary ? kToSigned : 0, bytes);
  }
}

std::span<const EncodeOutput> OutputsOf(const EncodeRequest& request, const ModelInfo& info) {
  if (!request.outputs.empty()) return request.outputs;
  if (request.output.has_value()) return {&*request.output, 1};
  static constexpr EncodeOutput kUsual = EncodeOutput::kPooled;
  return {info.outputs.empty() ? &kUsual : info.outputs.data(), 1};
}

int64_t WidthOf(const ModelInfo& info, EncodeOutput output) {
  switch (output) {
    case EncodeOutput::kPooled:
      return info.pooled_size > 0 ? info.pooled_size : info.hidden_size;
    case EncodeOutput::kTokenEmbeddings:
      return info.token_size > 0 ? info.token_size : info.hidden_size;
    case EncodeOutput::kLogits:
    case EncodeOutput::kScores:
      return static_cast<int64_t>(info.labels.size());
    case EncodeOutput::kSparse:
      return info.vocabulary_size;
    case EncodeOutput::kMaxSim:
      return 1;
  }
  return 0;
}

int64_t DimensionsOf(const EncodeRequest& request, const ModelInfo& info, EncodeOutput output) {
  const int64_t width = WidthOf(info, output);
  if (!HasVectors(output)) return width;
  if (request.dimensions > 0) return request.dimensions;
  if (output != EncodeOutput::kPooled || info.dimensions == 0) return width;
  return std::min(info.dimensions, width);
}

bool PerToken(const ModelInfo& info, EncodeOutput output) {
  const bool labels = output == EncodeOutput::kLogits || output == EncodeOutput::kScores;
  return output == EncodeOutput::kTokenEmbeddings || (labels && info.token_labels);
}

bool Pools(std::span<const EncodeOutput> outputs) {
  return std::ranges::find(outputs, EncodeOutput::kPooled) != outputs.end();
}

bool HasVectors(EncodeOutput output) {
  return output == EncodeOutput::kPooled || output == EncodeOutput::kTokenEmbeddings;
}

std::string_view OutputName(EncodeOutput output) {
  switch (output) {
    case EncodeOutput::kPooled:
      return "POOLED";
    case EncodeOutput::kTokenEmbeddings:
      return "TOKEN_EMBEDDINGS";
    case EncodeOutput::kLogits:
      return "LOGITS";
    case EncodeOutput::kScores:
      return "SCORES";
    case EncodeOutput::kSparse:
      return "SPARSE";
    case EncodeOutput::kMaxSim:
      return "MAX_SIM";
  }
  return "";
}

std::string NamesOfOutputs(const ModelInfo& info) {
  std::string names;
  for (const EncodeOutput output : info.outputs) {
    if (!names.empty()) names += ", ";
    names += OutputName(output);
  }
  return names;
}

}  // namespace castor::encoder

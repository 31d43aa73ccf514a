#include "engine/attention/shapes.h"

#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/tensor_reader.h"

namespace castor::attention {
namespace {

constexpr size_t kMaxRank = 8;  // of any tensor on the wire

std::string DimensionField(std::string_view tensor, size_t dimension) {
  return FieldAt(std::string(tensor) + ".shape", dimension);
}

// Values are a tensor of their own, or part of the keys, which have `head_dim` elements a head.
absl::Status CheckValueChoice(const AttentionRequest& request, int64_t head_dim) {
  if (!request.value_is_key_prefix) {
    if (request.value_dim == 0) return absl::OkStatus();
    return InvalidField("value_dim", "applies only with value_is_key_prefix: value has its own");
  }
  if (!request.value.shape.empty() || request.value.size_bytes() != 0) {
    return InvalidField("value", "must be absent if value_is_key_prefix is set");
  }
  if (request.value_dim >= 1 && request.value_dim <= head_dim) return absl::OkStatus();
  return InvalidField("value_dim", "must be 1.." + std::to_string(head_dim) + ", key's head_dim");
}

}  // namespace

absl::Status CheckTensor(const TensorInput& tensor, std::string_view field, int64_t* bytes) {
  if (tensor.shape.empty() || tensor.shape.size() > kMaxRank) {
    return InvalidField(std::string(field) + ".shape", "must have 1 to 8 dimensions");
  }
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] < 1) return InvalidField(DimensionField(field, i), "must be at least 1");
  }
  const std::optional<int64_t> needed = NumBytes(tensor.dtype, tensor.shape);
  if (!needed) {
    return InvalidField(std::string(field) + ".shape",
                        ShapeString(tensor.shape) + " has more elements than 64 bits can count");
  }
  if (tensor.size_bytes() != *needed) {
    return InvalidField(DataField(tensor, field),
                        "holds " + std::to_string(tensor.size_bytes()) + " bytes, but " +
                            std::string(NameOf(tensor.dtype)) + " " + ShapeString(tensor.shape) +
                            " needs " + std::to_string(*needed));
  }
  const std::optional<int64_t> total = CheckedAdd(*bytes, *needed);
  if (!total) return InvalidField(std::string(field) + ".shape", "is too large");
  *bytes = *total;
  return absl::OkStatus();
}

absl::Status CheckDType(const TensorInput& tensor, std::string_view field, DType expected) {
  if (tensor.dtype == expected) return absl::OkStatus();
  return InvalidField(
      std::string(field) + ".dtype",
      "is " + std::string(NameOf(tensor.dtype)) + ", must be " + std::string(NameOf(expected)));
}

absl::Status CheckDimension(const TensorInput& tensor, std::string_view field, size_t dimension,
                            int64_t expected, std::string_view meaning) {
  if (tensor.shape[dimension] == expected) return absl::OkStatus();
  return InvalidField(DimensionField(field, dimension),
                      "is " + std::to_string(tensor.shape[dimension]) + ", must be " +
                          std::to_string(expected) + ", " + std::string(meaning));
}

absl::StatusOr<Geometry> CheckTensors(const AttentionRequest& request) {
  const TensorInput& query = request.query;
  const TensorInput& key = request.key;
  const bool own_values = !request.value_is_key_prefix;
  const TensorInput& value = own_values ? request.value : request.key;
  if (!IsFloating(query.dtype)) {
    return InvalidField("query.dtype", "is " + std::string(NameOf(query.dtype)) +
                                           ", must be FLOAT32, FLOAT16 or BFLOAT16");
  }
  absl::Status status = CheckDType(key, "key", query.dtype);
  status.Update(CheckDType(value, "value", query.dtype));
  if (!status.ok()) return status;

  const size_t rank = query.shape.size();
  if (rank != 3 && rank != 4) {
    return InvalidField("query.shape",
                        "must be [tokens, heads, head_dim] or [batch, tokens, heads, head_dim]");
  }
  for (const auto& [tensor, field] : {std::pair(&key, "key"), std::pair(&value, "value")}) {
    if (tensor->shape.size() != rank) {
      return InvalidField(std::string(field) + ".shape",
                          "must have as many dimensions as query: " + std::to_string(rank));
    }
  }

  Geometry geometry;
  status = CheckTensor(query, "query", &geometry.bytes);
  status.Update(CheckTensor(key, "key", &geometry.bytes));
  if (own_values) status.Update(CheckTensor(value, "value", &geometry.bytes));
  if (!status.ok()) return status;

  const size_t tokens = rank - 3;  // the dimension that counts tokens; heads and dim follow
  geometry.packed = rank == 3;
  geometry.batch = geometry.packed ? 1 : query.shape[0];
  geometry.query_tokens = query.shape[tokens];
  geometry.key_tokens = key.shape[tokens];
  geometry.heads = query.shape[tokens + 1];
  geometry.head_dim = query.shape[tokens + 2];
  geometry.kv_heads = key.shape[tokens + 1];
  status = CheckValueChoice(request, geometry.head_dim);
  geometry.value_dim = own_values ? value.shape[tokens + 2] : request.value_dim;

  if (!geometry.packed) {
    constexpr std::string_view kBatch = "query's batch";
    status.Update(CheckDimension(key, "key", 0, geometry.batch, kBatch));
    status.Update(CheckDimension(value, "value", 0, geometry.batch, kBatch));
  }
  if (geometry.heads % geometry.kv_heads != 0) {
    status.Update(InvalidField(DimensionField("key", tokens + 1),
                               "is " + std::to_string(geometry.kv_heads) + ", must divide " +
                                   std::to_string(geometry.heads) + ", query's heads"));
  }
  status.Update(CheckDimension(key, "key", tokens + 2, geometry.head_dim, "query's head_dim"));
  status.Update(CheckDimension(value, "value", tokens, geometry.key_tokens, "the tokens of key"));
  status.Update(CheckDimension(value, "value", tokens + 1, geometry.kv_heads, "the heads of key"));
  if (!status.ok()) return status;
  return geometry;
}

}  // namespace castor::attention

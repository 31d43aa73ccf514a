// The shapes of a request's tensors: each on its own, and against each other.
//
// Pure functions of their arguments; any thread may call them. `field` is the tensor's path on the
// wire, such as "query" or "cast.gate"; errors are INVALID_FIELD at a path below it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/request.h"

namespace castor::attention {

// The sizes in the shapes of query, key and value.
struct Geometry {
  bool packed = true;  // three dimensions; four otherwise
  int64_t batch = 1;   // of four dimensions
  int64_t query_tokens = 0;
  int64_t key_tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  int64_t bytes = 0;  // of the tensors checked so far
  int64_t kv_heads = 0;
};

// Checks that there are 1 to 8 dimensions, all positive, and exactly as many bytes as they need.
// Adds these to `*bytes`.
absl::Status CheckTensor(const TensorInput& tensor, std::string_view field, int64_t* bytes);

absl::Status CheckDType(const TensorInput& tensor, std::string_view field, DType expected);

// Checks that one dimension, which must exist, is as expected; `meaning` says what it must match.
absl::Status CheckDimension(const TensorInput& tensor, std::string_view field, size_t dimension,
                            int64_t expected, std::string_view meaning);

// Checks that query, key and value have the same dtype and matching shapes.
absl::StatusOr<Geometry> CheckTensors(const AttentionRequest& request);

}  // namespace castor::attention

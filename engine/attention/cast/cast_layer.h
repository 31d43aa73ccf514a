// The surrogate tokens of a CAST layer that was loaded under a model's name, so that a request can
// say "MODEL/INDEX" instead of sending them. Immutable: any thread may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/base/aligned.h"
#include "engine/base/dtype.h"

namespace castor::attention {

class CastLayer {
 public:
  // `surrogates` [surrogate_tokens, heads, head_dim] in float32. Copies them, in every dtype that a
  // request can have, so that serving one converts nothing.
  CastLayer(const float* surrogates, int64_t surrogate_tokens, int64_t heads, int64_t head_dim);

  int64_t surrogate_tokens() const { return surrogate_tokens_; }
  int64_t heads() const { return heads_; }
  int64_t head_dim() const { return head_dim_; }
  int64_t elements() const { return surrogate_tokens_ * heads_ * head_dim_; }

  // [surrogate_tokens, heads, head_dim] in a floating `dtype`, aligned to 64 bytes. Host memory,
  // valid as long as this object.
  const std::byte* data(DType dtype) const;

 private:
  const int64_t surrogate_tokens_;
  const int64_t heads_;
  const int64_t head_dim_;
  AlignedArray<std::byte> memory_;  // float32, then float16, then bfloat16
  size_t float16_at_ = 0;
  size_t bfloat16_at_ = 0;
};

// Finds the layer "MODEL/INDEX". MODEL_NOT_FOUND, naming the layer.
using FindCastLayer =
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<const CastLayer>>(std::string_view)>;

// One that finds none.
absl::StatusOr<std::shared_ptr<const CastLayer>> NoCastLayer(std::string_view name);

}  // namespace castor::attention

// Queries, keys and values of a layer: one product for all three, then norms over queries and over
// keys where a family has them, then their rotation.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/encoder/layers/rope.h"
#include "engine/encoder/network/layers.h"
#include "engine/kernels/count.h"

namespace castor::encoder {

struct QkvConfig {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t key_value_heads = 0;  // fewer than heads: each serves as many neighbouring heads; 0: all
  bool bias = true;
  // Of the norms, if there are names for them.
  double norm_epsilon = 0;
  NormKind norm = NormKind::kLayerNorm;
  bool norm_heads = false;  // each head is a row of its own; else all together are one

  int64_t width() const { return heads * head_dim; }  // of a token's queries
};

// Where a layer's weights are, without ".weight" and ".bias".
struct QkvNames {
  std::string_view query;  // all three in one matrix where the next two are empty
  std::string_view key = {};
  std::string_view value = {};
  std::string_view query_norm = {};  // empty: none
  std::string_view key_norm = {};
};

// Neighbouring heads of a layer.
struct HeadRange {
  int64_t first = 0;
  int64_t count = 0;
};

struct Qkv {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // of keys and of values; divides `heads`
  Linear linear;         // [(heads + 2 * kv_heads) * head_dim, hidden]
  std::optional<LayerNorm> query_norm;
  std::optional<LayerNorm> key_norm;

  int64_t head_dim() const { return linear.out() / (heads + 2 * kv_heads); }

  // Ranges of heads begin at a multiple of so many: those that share keys and values; all, if a
  // norm goes over them together, or if keys and values begin where a matrix cannot be cut.
  int64_t head_grain() const;

  // [tokens, width]: queries of the range, then keys, then values, of the rows of `x`, behind
  // `before` if it is given; turned by `rotation` if it is given. In steps, with a checkpoint after
  // each.
  absl::StatusOr<at::Tensor> operator()(const at::Tensor& x, const LayerNorm* before,
                                        const Rotation* rotation, HeadRange range,
                                        RunControl& control) const;

  // What one step takes beside the rows of the result, in bytes. `like` is a weight: what steps are
  // cut by.
  kernels::Count step_bytes(const at::Tensor& like, bool before, bool rotated) const;
};

// Takes the weights of a layer whose names begin with `at`. Errors go to the reader.
Qkv TakeQkv(WeightReader& weights, const std::string& at, const QkvNames& names,
            const QkvConfig& config);

}  // namespace castor::encoder

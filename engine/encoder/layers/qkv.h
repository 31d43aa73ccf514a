// Queries, keys and values of a layer: one product for all three, then norms over queries and keys
// if the family has them, then rotation.
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
  int64_t key_value_heads = 0;  // adjacent heads share each, if fewer; 0: as many as heads
  bool bias = true;
  // The norms', if they have names.
  double norm_epsilon = 0;
  NormKind norm = NormKind::kLayerNorm;
  bool norm_heads = false;  // each head is normalised by itself; else all heads together

  int64_t width() const { return heads * head_dim; }  // of a token's queries
};

// The names of a layer's weights, without ".weight" and ".bias".
struct QkvNames {
  std::string_view query;  // if the next two are empty, one matrix holds all three
  std::string_view key = {};
  std::string_view value = {};
  std::string_view query_norm = {};  // empty: none
  std::string_view key_norm = {};
};

// A range of adjacent heads.
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

  // Ranges of heads begin at a multiple of this. It is the number of heads that share keys and
  // values; or all heads, if one norm covers them together or the matrix cannot be cut where keys
  // or values begin.
  int64_t head_grain() const;

  // [tokens, width]: the range's queries, then keys, then values, of the rows of `x`. `before`, if
  // given, normalises the rows first; `rotation`, if given, rotates queries and keys. `tasks`: of
  // the rows. Works in steps, with a checkpoint after each.
  absl::StatusOr<at::Tensor> operator()(const at::Tensor& x, const LayerNorm* before,
                                        const Rotation* rotation, HeadRange range,
                                        const TaskRows& tasks, RunControl& control) const;

  // The bytes that one step takes, without the rows of the result. `like`: a weight, whose type and
  // device decide the steps.
  kernels::Count step_bytes(const at::Tensor& like, bool before, bool rotated) const;
};

// Takes the weights of a layer whose names begin with `at`. Errors go to the reader.
Qkv TakeQkv(WeightReader& weights, const std::string& at, const QkvNames& names,
            const QkvConfig& config);

}  // namespace castor::encoder

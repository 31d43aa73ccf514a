// The layers that families are made of. Plain structs of weights and functions on packed rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/encoder/body.h"
#include "engine/encoder/weights.h"

namespace castor::encoder {

// The activations that configs name, by what they compute.
enum class Activation { kGeluErf, kGeluTanh, kQuickGelu, kRelu, kSilu, kTanh, kMish };

// nullopt for an unknown name. "gelu" is the exact form with erf.
std::optional<Activation> ParseActivation(std::string_view name);

// Overwrites `x`, which it returns.
at::Tensor Activate(Activation activation, at::Tensor x);

// A plain at::linear. On one AVX2 core (Zen 3, fp32, 512 and 2048 rows of MiniLM's shapes, best of
// 12 by thread time on a busy machine) it gave 86 to 89 GFLOP/s, 66 and 79 on 384 x 384.
// Alternatives tried: weights packed ahead by MKL (mkl::_mkl_linear, 75 to 90) and by oneDNN
// (mkldnn::_linear_pointwise, 81 to 89), and oneDNN's with GELU fused in (75 and 78, against 77 for
// linear, then gelu). No clear gain; 384 x 384 deserves another look on a quiet machine.
struct Linear {
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out], or undefined

  at::Tensor operator()(const at::Tensor& x) const;  // [rows, in] -> [rows, out]
};

// The number of rows that go through matrices of `weights` elements in one step. On a CPU that is
// at most about 40 ms of work for one core; elsewhere it is all rows.
int64_t RowsOfAStep(const at::Tensor& x, int64_t weights);

// Projects all rows, in steps, so that a request larger than any batch has checkpoints.
absl::StatusOr<at::Tensor> Project(const Linear& projection, const at::Tensor& x,
                                   RunControl& control);

struct LayerNorm {
  at::Tensor weight;  // [hidden]
  at::Tensor bias;    // [hidden]
  double epsilon = 0;

  at::Tensor operator()(const at::Tensor& x) const;  // [rows, hidden]

  // LayerNorm(x + residual); overwrites `x`.
  at::Tensor AddNorm(at::Tensor x, const at::Tensor& residual) const;
};

// Take the weights that a checkpoint keeps under `name` + ".weight" and ".bias"; errors go to the
// reader. TakeStackedLinear stacks several of the same shape along their rows.
Linear TakeLinear(WeightReader& weights, const std::string& name, int64_t out, int64_t in);
Linear TakeStackedLinear(WeightReader& weights, std::span<const std::string> names, int64_t out,
                         int64_t in);
LayerNorm TakeNorm(WeightReader& weights, const std::string& name, int64_t hidden, double epsilon);

// [tokens, hidden]: the rows of `table` for the batch's ids, or an item's own embeddings if it
// brings them.
at::Tensor TokenRows(const at::Tensor& table, const BodyInputs& in);

// Attention of every sequence over itself. `qkv` is [tokens, 3 * hidden]: queries, keys, values
// side by side. Returns [tokens, hidden].
absl::StatusOr<at::Tensor> SelfAttention(const at::Tensor& qkv, int64_t heads,
                                         const BodyInputs& in);

}  // namespace castor::encoder

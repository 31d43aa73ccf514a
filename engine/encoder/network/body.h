// The transformer of a model, from token ids to the last layer's rows. One of the three parts of a
// model, with its head (head.h) and its input rules (text/prepare.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/run_control.h"
#include "engine/encoder/layers/attention_layers.h"
#include "engine/encoder/network/activations.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/network/packing.h"
#include "engine/request.h"

namespace castor::encoder {

// A body's description.
struct BodyInfo {
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;        // 0: hidden / heads
  int64_t embedding_size = 0;  // of word embeddings, which are projected if narrower; 0: hidden
  std::vector<KernelName> kernels = {};  // that its attention layers may run

  // Layers whose tokens see those at most `window` away. They run exact attention, whatever the
  // request's kernel is, since their time is linear in the length already. The other layers see all
  // tokens.
  int64_t local_layers = 0;
  int64_t window = 0;
  attention::PositionBias bias = {};  // of every layer; the body owns its memory

  // If set, every layer's attention is CAST with these parameters, whatever the request's kernel
  // is: CAST is not softmax attention, and the model was trained with it. The layers hold the
  // tensors, `surrogates` tokens each.
  std::optional<Cast> cast = {};
  int64_t surrogates = 0;

  int64_t key_value_heads = 0;  // adjacent heads share each, if fewer; 0: as many as heads

  double softmax_scale = 0;  // of every layer; 0: one over the root of the head size
  double softcap = 0;        // of every layer's scores, see attention::Spec; 0: none

  // Tokens see no later tokens, in every layer and whatever a request says: the model was trained
  // so. Such layers run vanilla attention only, since queries that share scores would see the same
  // keys.
  bool causal = false;

  bool disentangled = false;  // DeBERTa's attention, which cannot hide tokens

  bool projected() const { return embedding_size > 0 && embedding_size != hidden; }
  int64_t head_size() const { return head_dim > 0 ? head_dim : hidden / heads; }
  int64_t width() const { return heads * head_size(); }  // of a token's queries
};

// The attention of layers that see all tokens, and of local layers.
attention::Spec GlobalAttention(const BodyInfo& info, DType dtype, const Kernel& kernel);
attention::Spec LocalAttention(const BodyInfo& info, DType dtype);

// The attention of the body's layers: one or both of these.
std::vector<AttentionLayers> AttentionLayersOf(const BodyInfo& info, DType dtype,
                                               const Kernel& kernel);

// A packed batch on the device, as a body reads it.
struct BodyInputs {
  at::Tensor ids;            // int64 [tokens]
  at::Tensor type_ids;       // int64 [tokens]
  at::Tensor positions;      // int64 [tokens], from InputRules::first_position in each sequence
  at::Tensor key_bias = {};  // Packing's, on the device; undefined: there is none
  const Batch& batch;
  const Packing& packing;
  const Inputs& inputs;  // for rows that come as embeddings
  const AttentionFn& attention;
  RunControl& control;
};

// Immutable once built; Forward runs on the device's thread.
class Body {
 public:
  virtual ~Body() = default;
  virtual const BodyInfo& info() const = 0;

  // The memory that Forward allocates on the weights' device.
  virtual BodyActivations activations() const = 0;

  // The last layer's rows, [tokens, hidden] in the weights' dtype. Checks the control between parts
  // of layers, each at most about 50 ms of work for one core.
  virtual absl::StatusOr<at::Tensor> Forward(const BodyInputs& in) const = 0;
};

}  // namespace castor::encoder

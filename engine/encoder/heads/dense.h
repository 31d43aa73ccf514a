// Layers behind a pooling, or behind a transformer's token rows: sentence-transformers' Dense and
// LayerNorm modules, and the projection of ColBERT. Always in float32, whatever the body is served
// in.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/run_control.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/heads/head_layout.h"
#include "engine/encoder/layers/activation.h"
#include "engine/encoder/layers/layer_norm.h"
#include "engine/encoder/layers/linear.h"
#include "engine/encoder/network/layers.h"
#include "engine/kernels/count.h"

namespace castor::encoder {

// What the config.json of a Dense or a LayerNorm module says.
struct DenseModule {
  std::string folder;  // of its config.json and weights
  int64_t in = 0;
  int64_t out = 0;
  bool bias = true;
  std::optional<Activation> activation = {};  // none: the identity
  bool residual = false;                      // adds its input, projected where sizes differ
  bool norm = false;                          // a LayerNorm of `in` elements instead
};

// Reads `folder`/config.json. `input` is what the layer must take, and give:
// "sentence_embedding" or "token_embeddings". `colbert`: a MultiVectorEncoder's layer, which takes
// the latter where its file does not say.
absl::StatusOr<DenseModule> ReadDense(const std::string& folder, const std::string& input,
                                      bool colbert);

absl::StatusOr<DenseModule> ReadLayerNorm(const std::string& folder);

struct DenseLayer {
  Linear linear;
  std::optional<Activation> activation;
  bool adds_input = false;
  std::optional<Linear> residual = {};  // of the input that is added; none: as it is
  std::optional<LayerNorm> norm = {};   // instead of all that
};

class DenseStack {
 public:
  DenseStack() = default;
  explicit DenseStack(std::vector<DenseLayer> layers) : layers_(std::move(layers)) {}

  bool empty() const { return layers_.empty(); }
  int64_t out() const;  // 0: as many as come in

  // What a row takes beside itself.
  kernels::Count row_bytes() const;

  // [rows, in] in any floating type -> float32 [rows, out], in steps. Without layers: `rows`.
  absl::StatusOr<at::Tensor> operator()(const at::Tensor& rows, RunControl& control) const;

 private:
  std::vector<DenseLayer> layers_;
};

// A stack and what it counts for in the model's size.
struct LoadedDense {
  DenseStack stack;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
};

// Takes the modules' weights; `width` is of the rows that the first one gets.
absl::StatusOr<LoadedDense> LoadDense(const std::vector<DenseModule>& modules, int64_t width,
                                      at::Device device);

// The part of a head before its last layer: a dense layer with an activation and a LayerNorm, each
// of which may be missing.
//
// Immutable; used on the engine thread of the device that has the weights.
class HeadTransform {
 public:
  HeadTransform() = default;

  int64_t elements() const { return dense_.has_value() ? dense_->elements() : 0; }

  // [rows, hidden] of the weights' type.
  at::Tensor operator()(const at::Tensor& rows) const;

 private:
  friend HeadTransform TakeTransform(ConfigReader& config, WeightReader& weights,
                                     const TransformNames& names, double epsilon, int64_t hidden);

  std::optional<Linear> dense_;
  Activation activation_ = Activation::kTanh;
  std::optional<LayerNorm> norm_;
};

// Errors go to the readers.
HeadTransform TakeTransform(ConfigReader& config, WeightReader& weights,
                            const TransformNames& names, double epsilon, int64_t hidden);

// The steps in which heads compute: rows of any number go by, and only one step's are in memory.
inline constexpr int64_t kMostHeadRows = 2048;

// Of a step through matrices of `weights` elements. Does not depend on the batch.
inline int64_t HeadRows(const at::Tensor& rows, int64_t weights) {
  return std::min(kMostHeadRows, RowsOfAStep(rows, std::max<int64_t>(1, weights)));
}

}  // namespace castor::encoder

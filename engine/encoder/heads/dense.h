// Layers that follow a pooling or a transformer's token rows: sentence-transformers' Dense and
// LayerNorm modules, and ColBERT's projection. Always float32, whatever the type of the body.
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
#include "engine/encoder/layers/layer_norm.h"
#include "engine/encoder/layers/linear.h"
#include "engine/encoder/network/layers.h"
#include "engine/kernels/count.h"

namespace castor::encoder {

// A Dense or LayerNorm module as its config.json describes it.
struct DenseModule {
  std::string folder;  // of its config.json and weights
  int64_t in = 0;
  int64_t out = 0;
  bool bias = true;
  std::optional<Activation> activation = {};  // none: the identity
  bool residual = false;                      // adds its input, projected if sizes differ
  bool norm = false;                          // it is a LayerNorm of `in` elements
};

// Reads `folder`/config.json. The layer must read and write the feature `input`:
// "sentence_embedding" or "token_embeddings". `colbert`: the default is "token_embeddings", as in a
// MultiVectorEncoder.
absl::StatusOr<DenseModule> ReadDense(const std::string& folder, const std::string& input,
                                      bool colbert);

absl::StatusOr<DenseModule> ReadLayerNorm(const std::string& folder);

struct DenseLayer {
  Linear linear;
  std::optional<Activation> activation;
  bool adds_input = false;
  std::optional<Linear> residual = {};  // projects the input before it is added
  std::optional<LayerNorm> norm = {};   // replaces all of the above
};

class DenseStack {
 public:
  DenseStack() = default;
  explicit DenseStack(std::vector<DenseLayer> layers) : layers_(std::move(layers)) {}

  bool empty() const { return layers_.empty(); }
  int64_t out() const;  // elements of a result; 0: as many as the input has

  // Memory per row, without the row itself.
  kernels::Count row_bytes() const;

  // [rows, in] in any floating type -> float32 [rows, out], in steps. Without layers: `rows`.
  absl::StatusOr<at::Tensor> operator()(const at::Tensor& rows, RunControl& control) const;

 private:
  std::vector<DenseLayer> layers_;
};

// A stack and its share of the model's size.
struct LoadedDense {
  DenseStack stack;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
};

// Takes the modules' weights. `width`: elements of the rows that the first module gets.
absl::StatusOr<LoadedDense> LoadDense(const std::vector<DenseModule>& modules, int64_t width,
                                      at::Device device);

// The part of a head before its last layer: a dense layer with an activation, and a LayerNorm.
// Either may be missing.
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

// Heads compute in steps of at most this many rows, so that only one step's results are in memory.
inline constexpr int64_t kMostHeadRows = 2048;

// Rows of a step through matrices of `weights` elements. Does not depend on the batch.
inline int64_t HeadRows(const at::Tensor& rows, int64_t weights) {
  return std::min(kMostHeadRows, RowsOfAStep(rows, std::max<int64_t>(1, weights)));
}

}  // namespace castor::encoder

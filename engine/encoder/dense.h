// Dense layers behind a pooling, or behind a transformer's token rows: sentence-transformers' Dense
// modules, and the projection of ColBERT. Always in float32, whatever the body is served in.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/count.h"
#include "engine/base/run_control.h"
#include "engine/encoder/activation.h"
#include "engine/encoder/linear.h"

namespace castor::encoder {

// What a Dense module's config.json says.
struct DenseModule {
  std::string folder;  // of its config.json and weights
  int64_t in = 0;
  int64_t out = 0;
  bool bias = true;
  std::optional<Activation> activation = {};  // none: the identity
};

// Reads `folder`/config.json. `input` is what the layer must take, and give:
// "sentence_embedding" or "token_embeddings".
absl::StatusOr<DenseModule> ReadDense(const std::string& folder, const std::string& input);

struct DenseLayer {
  Linear linear;
  std::optional<Activation> activation;
};

class DenseStack {
 public:
  DenseStack() = default;
  explicit DenseStack(std::vector<DenseLayer> layers) : layers_(std::move(layers)) {}

  bool empty() const { return layers_.empty(); }
  int64_t out() const {
    return empty() ? 0 : layers_.back().linear.out();
  }  // 0: as many as come in

  // What a row takes beside itself.
  attention::Count row_bytes() const;

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

}  // namespace castor::encoder

// A loaded encoder model: weights on one device, tokenizer, and how its outputs are pooled.
//
// Immutable after LoadModel (engine/encoder/load.h), so any thread may read it; Forward is called
// on the thread of the model's device only. Code that must not see the tensor library includes
// engine/encoder/prepare.h instead.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/encoder/batch.h"
#include "engine/encoder/packing.h"
#include "engine/engine.h"
#include "engine/hf/tokenizer.h"

namespace castor::encoder {

class Body;

// Runs one attention layer over all sequences of a batch. The device injects it, and so decides
// which implementation runs; pointers are to the device's memory.
using AttentionFn =
    std::function<absl::Status(const attention::Spec& spec, const attention::Problem& problem)>;

// A batch's inputs on the model's device.
struct Inputs {
  at::Tensor indices;  // int64 [packing.index_elements()], see Packing
  // Per item: undefined, or [tokens, hidden] in any floating type where the item brings embeddings.
  // May be empty when no item does.
  std::vector<at::Tensor> embeddings;
};

class Model {
 public:
  Model(ModelInfo info, at::Device device, std::unique_ptr<hf::Tokenizer> tokenizer,
        std::unique_ptr<Body> body, AttentionFn attention);
  ~Model();

  const ModelInfo& info() const { return info_; }
  const hf::Tokenizer& tokenizer() const { return *tokenizer_; }
  at::Device device() const { return device_; }

  // Computes the batch and returns one tensor per item, float32, contiguous, on the model's device:
  // [sequences, dimensions] when pooled, else [tokens, dimensions]. Exactly packing.tokens() rows
  // go through every layer. On a GPU the work is queued on the current stream and nothing waits.
  // Tensors may be views of each other's storage. May throw what LibTorch throws (out of memory,
  // device errors): the device turns that into a Status.
  absl::StatusOr<std::vector<at::Tensor>> Forward(const Batch& batch, const Packing& packing,
                                                  const Inputs& inputs) const;

 private:
  const ModelInfo info_;
  const at::Device device_;
  const std::unique_ptr<hf::Tokenizer> tokenizer_;
  const std::unique_ptr<Body> body_;
  const AttentionFn attention_;
};

// What a CPU device does with a batch: packs it, computes, and writes every item's output.
absl::Status RunOnHost(const Batch& batch);

}  // namespace castor::encoder

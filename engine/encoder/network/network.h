// The part of a model that holds tensors: a body and a head, with the attention that the device
// provides.
//
// Immutable, so any thread may read it. Forward is called on the device's thread only. Code that
// must not include the tensor library includes engine/encoder/model.h instead.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/base/run_control.h"
#include "engine/encoder/network/activations.h"
#include "engine/encoder/network/batch.h"
#include "engine/encoder/network/packing.h"
#include "engine/encoder/text/prepare.h"

namespace castor::encoder {

class Body;
class Head;

// Runs one attention layer over all sequences of a batch. The device provides it and so chooses the
// implementation. Pointers are to device memory.
using AttentionFn = std::function<absl::Status(
    const attention::Spec& spec, const attention::Problem& problem, RunControl& control)>;

// A batch's inputs on the network's device.
struct Inputs {
  at::Tensor indices;  // int64 [packing.index_elements()], see Packing
  // Per item: [tokens, hidden] of any floating type if the item brings embeddings, else undefined.
  // May be empty if no item does.
  std::vector<at::Tensor> embeddings;
};

class Network {
 public:
  // `body` and `head` have their weights on `device`.
  Network(InputRules rules, std::unique_ptr<Body> body, std::unique_ptr<Head> head,
          at::Device device, AttentionFn attention);
  ~Network();
  Network(Network&&) noexcept;

  const InputRules& rules() const { return rules_; }
  const Body& body() const { return *body_; }
  const Head& head() const { return *head_; }
  at::Device device() const { return device_; }

  // The memory that batches allocate, with weights of `dtype`.
  Activations activations(DType dtype) const;

  // Computes the batch: the head's result for each item, float32, contiguous, on the network's
  // device. Tensors may be views of each other's storage. Exactly packing.tokens() rows go through
  // every layer. On a GPU the work is queued on the current stream, and nothing waits. LibTorch's
  // exceptions (out of memory, device errors) pass through; the device turns them into a Status.
  // Checks `control` between layers and their parts and inside attention, and returns a status that
  // ends the run unchanged.
  absl::StatusOr<std::vector<at::Tensor>> Forward(const Batch& batch, const Packing& packing,
                                                  const Inputs& inputs, RunControl& control) const;

 private:
  InputRules rules_;
  std::unique_ptr<Body> body_;
  std::unique_ptr<Head> head_;
  at::Device device_;
  AttentionFn attention_;
};

// Runs a batch on the CPU: packs it, computes, and writes every item's output. Requires a model
// with a network on the CPU.
absl::Status RunOnHost(const Batch& batch, RunControl& control);

}  // namespace castor::encoder

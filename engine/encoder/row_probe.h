// How much an approximate kernel loses inside an encoder, measured while a batch runs: in every
// layer that approximates, a few rows of each sequence attend exactly as well, to the keys and
// values that the layer has anyway.
//
// A sequence's loss is the sum over those layers of the mean over its rows of
//   ||approximate - exact||^2 / ||exact||^2
// of a row in all heads. It says what each layer adds, not what the layers after it make of that:
// jobs/cosine_gains.h learns how far it turns the pooled vector.
//
// One per forward pass, on the thread and the device of the network. May throw what LibTorch
// throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/status.h"
#include "engine/attention/problem.h"
#include "engine/base/run_control.h"
#include "engine/encoder/batch.h"
#include "engine/encoder/network.h"
#include "engine/encoder/packing.h"

namespace castor::encoder {

class RowProbe {
 public:
  // For the items with `probe_rows`, if the batch's kernel approximates. `batch` and `packing` must
  // outlive the object.
  RowProbe(const Batch& batch, const Packing& packing, at::Device device);

  // Adds some heads of a layer. `spec` is what they ran; one that is exact adds nothing. qkv
  // [tokens, 3 * width] is their input, mixed [tokens, width] their output.
  absl::Status AddHeads(const attention::Spec& spec, const at::Tensor& qkv, const at::Tensor& mixed,
                        const AttentionFn& attention, RunControl& control);

  // Ends a layer, whose heads have been added.
  void EndLayer();

  // Per item of the batch: float32 [sequences], on the device; undefined for those without a probe.
  std::vector<at::Tensor> Losses() const;

 private:
  struct Item {
    size_t index = 0;  // in the batch
    int64_t first_token = 0;
    std::vector<int32_t> cu_rows = {};  // [sequences + 1], where each sequence's rows begin
    std::vector<int32_t> cu_keys = {};  // [sequences + 1]
    at::Tensor rows = {};               // int64 [rows], among the batch's tokens
    at::Tensor sequences = {};          // int64 [rows], whose row it is
    at::Tensor shares = {};             // float32 [rows], one by the rows of its sequence
    at::Tensor losses = {};             // float32 [sequences]
    std::vector<at::Tensor> lost = {};  // of the layer's heads so far: float32 [rows, heads]
    std::vector<at::Tensor> norm = {};  // the same, of what is exact
  };

  const size_t items_in_batch_;
  std::vector<Item> items_;
};

}  // namespace castor::encoder

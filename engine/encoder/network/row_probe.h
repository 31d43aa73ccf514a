// How much an approximate kernel loses inside an encoder, measured while a batch runs: in every
// layer that approximates, a few rows of each sequence attend exactly as well, to the keys and
// values that the layer has anyway.
//
// A sequence's loss is the sum over those layers of the mean over its rows of
//   ||approximate - exact||^2 / ||exact||^2
// where both are the layer's input with attention added to it. So what is lost counts by what it is
// beside the rest of the row: attention that hardly moves a row loses little. It says what each
// layer adds, not what the layers after it make of that: jobs/cosine_gains.h learns how far it
// turns the pooled vector.
//
// One per forward pass, on the thread and the device of the network. May throw what LibTorch
// throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "engine/attention/problem.h"
#include "engine/base/run_control.h"
#include "engine/encoder/network/batch.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/network/packing.h"

namespace castor::encoder {

// How a layer goes on from what its heads returned.
struct Addition {
  const at::Tensor& x;      // [tokens, hidden], the layer's input
  const at::Tensor& mixed;  // [tokens, hidden], of all heads
  // What is added to the input's rows for such rows of `mixed`: [rows, hidden] of both.
  std::function<at::Tensor(const at::Tensor&)> output;
  int64_t step = 0;  // of its rows
};

class RowProbe {
 public:
  // For the items with `probe_rows`, if the batch's kernel approximates. `batch` and `packing` must
  // outlive the object.
  RowProbe(const Batch& batch, const Packing& packing, at::Device device);

  // Adds some heads of a layer, in the order of its columns. `spec` is what they ran; one that is
  // exact adds nothing. qkv [tokens, 3 * width] is their input.
  absl::Status AddHeads(const attention::Spec& spec, const at::Tensor& qkv,
                        const AttentionFn& attention, RunControl& control);

  // Ends a layer, whose heads have been added. Checks the control after each step.
  absl::Status EndLayer(const Addition& addition, RunControl& control);

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
    // Of the layer's heads so far: [rows, width] of each range.
    std::vector<at::Tensor> exact = {};
  };

  const size_t items_in_batch_;
  std::vector<Item> items_;
};

}  // namespace castor::encoder

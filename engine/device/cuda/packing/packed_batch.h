// A batch of attention requests on its way to a GPU: their tensors, concatenated in device memory,
// make one problem of the sequences of all requests.
//
// Used on the device's engine thread, while one batch is launched.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/device/cuda/launch/cast_layers.h"
#include "engine/device/cuda/packing/copies.h"
#include "engine/device/cuda/packing/packed_offsets.h"
#include "engine/device/device.h"

namespace castor {

inline std::byte* DataOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

class PackedBatch {
 public:
  // `offsets` come from PackOffsets of the batch, which must outlive this object. Allocates the
  // tensors on the current stream. May throw what LibTorch throws.
  PackedBatch(const AttentionBatch& batch, PackedOffsets offsets, at::Device device);
  PackedBatch(const PackedBatch&) = delete;
  PackedBatch& operator=(const PackedBatch&) = delete;

  // All tensors; the caller keeps them until the device is done.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  // The copies that fill the tensors from the requests' memory.
  std::vector<Copy> CopiesIn() const;

  // The batch's, with biases in device memory.
  attention::Spec spec() const;

  // The problem that the tensors make, without an output: the kernels allocate theirs. Points into
  // this object.
  attention::Problem problem() const;

 private:
  at::Tensor Allocate(int64_t rows, int64_t row, at::ScalarType type, at::Device device);

  const AttentionBatch& batch_;
  const PackedOffsets offsets_;
  const int64_t query_row_;    // elements
  const int64_t layer_bytes_;  // of one CAST layer's surrogate tokens
  std::vector<at::Tensor> tensors_;
  at::Tensor query_;
  at::Tensor key_;
  at::Tensor value_;
  // For Cast only.
  BatchLayers layers_;
  at::Tensor surrogates_;
  at::Tensor gate_;
  // Empty unless the spec has them.
  std::vector<attention::Place> places_;
  at::Tensor key_bias_;
  at::Tensor slopes_;
  at::Tensor table_;
};

}  // namespace castor

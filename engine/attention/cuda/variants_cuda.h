// The GPU's rows of the variant table (engine/attention/variants.h).
//
// Called on the device's engine thread with its stream current, except for CudaVariants. Functions
// that compute may throw what LibTorch throws: the device turns that into a Status.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/attention/cuda/choice.h"
#include "engine/attention/variants.h"

namespace castor::attention::cuda {

// Consecutive output rows of a batch.
struct OutputRows {
  int64_t first = 0;  // token of the batch
  at::Tensor rows;    // [tokens, heads, value_dim], contiguous
};

// The result of a row. Keeping the tensors that the kernels wrote, instead of copying them into
// one, saves a pass over the output.
struct Computed {
  std::vector<OutputRows> outputs;  // cover all query tokens, in order
  std::string_view backend;         // what really ran, such as "cuda-cudnn"
};

// Sets what the rows may use. Called once, before CudaVariants is handed out.
void SetCapabilities(const Capabilities& capabilities);

// The rows, best first.
std::span<const Variant> CudaVariants();

// Computes a problem with `variant`, a row of CudaVariants(). The problem's output is not touched.
Computed Compute(const Variant& variant, const Spec& spec, const Problem& problem,
                 at::Device device);

}  // namespace castor::attention::cuda

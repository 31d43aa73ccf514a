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

#include "engine/attention/cuda/choice.h"
#include "engine/attention/problem.h"
#include "engine/attention/variants.h"

namespace castor::attention::cuda {

// Consecutive output rows of a batch.
struct OutputRows {
  int64_t first = 0;       // token of the batch
  at::Tensor rows;         // [tokens, heads, value_dim], contiguous
  at::Tensor log_sum_exp;  // [tokens, heads], float32, contiguous, if the spec has it
};

// The result of a row. Keeping the tensors that the kernels wrote, instead of copying them into
// one, saves a pass over the output.
struct Computed {
  std::vector<OutputRows> outputs;  // cover all query tokens, in order
  std::string_view backend;         // the row's, such as "cuda-flash"

  // Appends the same row's result for the batch's next tokens, which begin at `first`.
  void Append(Computed piece, int64_t first);
};

// Sets what the rows may use. Called once, before CudaVariants is handed out.
void SetCapabilities(const Capabilities& capabilities);

// The rows, best first.
std::span<const Variant> CudaVariants();

// Computes a problem with `variant`, a row of CudaVariants(). The problem's output is not touched.
Computed Compute(const Variant& variant, const Spec& spec, const Problem& problem,
                 at::Device device);

// The step at which a row of CudaVariants() lets a sequence's queries be cut (choice.h); 0: none.
int64_t QueryStep(const Variant& variant, const Spec& spec, int64_t query_tokens,
                  int64_t key_tokens);

// The rows that run our own kernels: every sequence of the problem in the same few launches.
// Require ClusteredFits and CastFits (fits.h).
Computed ComputeClustered(std::string_view backend, const Spec& spec, const Problem& problem,
                          at::Device device);
Computed ComputeCast(std::string_view backend, const Spec& spec, const Problem& problem,
                     at::Device device);

}  // namespace castor::attention::cuda

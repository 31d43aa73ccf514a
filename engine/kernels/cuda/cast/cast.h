// CAST attention (arXiv 2402.04239) on the GPU, over raw pointers. The definition, with its steps,
// is tests/support/twins/cast.h; engine/attention/cast/cast.md, "On the GPU", explains the stages.
//
// A ragged batch is computed in five launches, whatever its sequences: one fewer with Laplace,
// three more with single assignment. Everything is queued on the stream: no allocation, no wait, no
// copy, so that a CUDA graph can capture it. All sizes follow from lengths that the host knows.
//
// Threads: pure functions, and Run, which any thread may call that may use the stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/element.h"

namespace castor::kernels::cuda {

// Parameters that the sequences of a batch share.
struct CastShape {
  Element element = Element::kFloat32;  // of query, key, value, surrogates and output
  int heads = 0;
  int head_dim = 0;
  int value_dim = 0;
  int clusters = 0;      // N_c
  int cluster_size = 0;  // kappa; 0: ceil(tokens / N_c). At most the tokens of each sequence
  float scale = 0;       // of scores
  bool laplace = false;  // the attention function; else softmax
  bool gated = true;     // gate temperature 1 + softplus; else none
  bool per_head = false;
  bool single_assignment = false;  // needs N_c * kappa >= the tokens of each sequence
  int group = 1;                   // neighbouring heads that have the same keys and values
};

// Offsets of a batch's sequences: kCastTables rows of sequences + 1 each, computed on the host and
// read by the kernels. Upload them with the batch. `layer_of_sequence` may be empty.
inline constexpr int kCastTables = 7;
std::vector<int32_t> MakeCastTables(const CastShape& shape, std::span<const int32_t> cu_seqlens,
                                    std::span<const int32_t> layer_of_sequence);

// Size of the device memory that Run works in, in bytes. cudaMalloc's alignment suffices.
// Count::kMost (engine/kernels/count.h) where it cannot be counted or a grid cannot hold the batch.
int64_t CastWorkspaceBytes(const CastShape& shape, std::span<const int32_t> cu_seqlens);

// A packed batch; all pointers but cu_seqlens to device memory. Strides count elements from token
// to token.
struct CastBatch {
  const void* query = nullptr;       // [tokens, heads, head_dim]
  const void* key = nullptr;         // [tokens, heads / group, head_dim]
  const void* value = nullptr;       // [tokens, heads / group, value_dim]
  void* output = nullptr;            // [tokens, heads, value_dim]
  const void* surrogates = nullptr;  // [layers, N_c, heads, head_dim]
  const float* gate = nullptr;       // [tokens]
  int64_t query_stride = 0;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t output_stride = 0;
  std::span<const int32_t> cu_seqlens;  // host memory, [sequences + 1]
  const int32_t* tables = nullptr;      // MakeCastTables of the same, [kCastTables, sequences + 1]
  void* workspace = nullptr;            // CastWorkspaceBytes
  int64_t value_head_stride = 0;        // elements from one head's value to the next of its token
};

// cudaErrorInvalidValue if a grid cannot hold the batch.
cudaError_t Run(const CastShape& shape, const CastBatch& batch, cudaStream_t stream);

}  // namespace castor::kernels::cuda

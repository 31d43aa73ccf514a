// CudaDevice::LaunchAttention: packs a batch of attention requests and queues it on the streams.

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <limits>
#include <variant>
#include <vector>

#include "engine/attention/cuda/tensors.h"
#include "engine/attention/cuda/variants_cuda.h"
#include "engine/base/error.h"
#include "engine/device/cuda/cast_layers.h"
#include "engine/device/cuda/copies.h"
#include "engine/device/cuda/cuda_device.h"

namespace castor {
namespace {

using attention::Problem;
using attention::Spec;

// The batch as one problem: all sequences of all requests, one after another.
struct Packed {
  std::vector<int32_t> cu_seqlens_q = {0};
  std::vector<int32_t> cu_seqlens_k = {0};
};

// Appends a request's offsets, shifted; false when they leave int32.
bool Append(std::span<const int32_t> offsets, std::vector<int32_t>& all) {
  const int64_t base = all.back();
  if (base + offsets.back() > std::numeric_limits<int32_t>::max()) return false;
  for (size_t s = 1; s < offsets.size(); ++s) {
    all.push_back(static_cast<int32_t>(base + offsets[s]));
  }
  return true;
}

// Copies that bring one tensor of each request, `row` elements a token, behind each other.
std::vector<Copy> PackingCopies(const AttentionBatch& batch, const std::byte* Problem::*data,
                                int64_t (Problem::*tokens)() const, int64_t row,
                                std::byte* packed) {
  std::vector<Copy> copies;
  copies.reserve(batch.requests.size());
  for (const Problem& request : batch.requests) {
    const auto bytes = static_cast<size_t>((request.*tokens)() * row) * SizeOf(batch.spec.dtype);
    if (bytes > 0) copies.push_back({packed, request.*data, bytes});
    packed += bytes;
  }
  return copies;
}

// Copies that bring the layers, `bytes` each, behind each other.
void AppendLayers(const BatchLayers& layers, int64_t bytes, std::byte* packed,
                  std::vector<Copy>& copies) {
  for (const std::byte* layer : layers.layers) {
    copies.push_back({packed, layer, static_cast<size_t>(bytes)});
    packed += bytes;
  }
}

// Copies that bring each request's gates, one a token, behind each other.
void AppendGates(const AttentionBatch& batch, float* packed, std::vector<Copy>& copies) {
  for (const Problem& request : batch.requests) {
    const auto bytes = static_cast<size_t>(request.query_tokens()) * sizeof(float);
    if (bytes > 0) {
      copies.push_back({reinterpret_cast<std::byte*>(packed),
                        reinterpret_cast<const std::byte*>(request.cast.gate), bytes});
    }
    packed += request.query_tokens();
  }
}

// Staging memory holds each tensor without gaps.
bool IsDense(const Spec& spec, const Problem& request) {
  return request.query_stride == spec.heads * spec.head_dim &&
         request.key_stride == spec.heads * spec.head_dim &&
         request.value_stride == spec.heads * spec.value_dim &&
         request.output_stride == spec.heads * spec.value_dim;
}

}  // namespace

absl::Status CudaDevice::LaunchAttention(const AttentionBatch& batch, CudaExecution& execution) {
  const Spec& spec = batch.spec;
  const attention::Variant* variant = attention::FindVariant(variants(), spec);
  if (variant == nullptr) {
    return MakeError(Reason::kKernelNotAvailable, "no kernel on this device runs this attention");
  }
  Packed packed;
  for (const Problem& request : batch.requests) {
    if (!IsDense(spec, request)) return MakeError(Reason::kInternal, "staging memory has gaps");
    if (!Append(request.cu_seqlens_q, packed.cu_seqlens_q) ||
        !Append(request.cu_seqlens_k, packed.cu_seqlens_k)) {
      return MakeError(Reason::kInternal, "a batch of more than 2^31 tokens");
    }
  }
  const int64_t query_tokens = packed.cu_seqlens_q.back();
  const int64_t key_tokens = packed.cu_seqlens_k.back();
  const int64_t key_row = spec.heads * spec.head_dim;
  const int64_t value_row = spec.heads * spec.value_dim;

  // The inputs belong to the copying stream, which so never waits for memory that an earlier batch
  // still computes in.
  at::Tensor query, key, value;
  at::Tensor surrogates, gate;  // of CAST
  BatchLayers layers;
  const int64_t layer_elements = spec.surrogates * key_row;
  const int64_t layer_bytes = layer_elements * static_cast<int64_t>(SizeOf(spec.dtype));
  {
    const c10::cuda::CUDAStreamGuard guard(streams_.copy_in);
    const auto options =
        at::TensorOptions().dtype(attention::ScalarTypeOf(spec.dtype)).device(device_);
    query = at::empty({query_tokens, key_row}, options);
    key = at::empty({key_tokens, key_row}, options);
    value = at::empty({key_tokens, value_row}, options);
    execution.Keep(query);
    execution.Keep(key);
    execution.Keep(value);
    if (std::holds_alternative<Cast>(spec.kernel)) {
      layers = DistinctLayers(batch.requests, layer_bytes);
      surrogates = at::empty({static_cast<int64_t>(layers.layers.size()), layer_elements}, options);
      gate = at::empty({query_tokens}, options.dtype(at::kFloat));
      execution.Keep(surrogates);
      execution.Keep(gate);
    }
  }
  const auto data = [](const at::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.mutable_data_ptr());
  };

  execution.BeginCopyIn();
  std::vector<Copy> copies =
      PackingCopies(batch, &Problem::query, &Problem::query_tokens, key_row, data(query));
  for (const Copy& copy :
       PackingCopies(batch, &Problem::key, &Problem::key_tokens, key_row, data(key))) {
    copies.push_back(copy);
  }
  for (const Copy& copy :
       PackingCopies(batch, &Problem::value, &Problem::key_tokens, value_row, data(value))) {
    copies.push_back(copy);
  }
  if (gate.defined()) {
    AppendLayers(layers, layer_bytes, data(surrogates), copies);
    AppendGates(batch, static_cast<float*>(gate.mutable_data_ptr()), copies);
  }
  C10_CUDA_CHECK(QueueCopies(copies, cudaMemcpyHostToDevice, streams_.copy_in));
  execution.EndCopyIn();

  Problem problem;
  problem.query = data(query);
  problem.key = data(key);
  problem.value = data(value);
  problem.query_stride = key_row;
  problem.key_stride = key_row;
  problem.value_stride = value_row;
  problem.output_stride = value_row;
  problem.cu_seqlens_q = packed.cu_seqlens_q;
  problem.cu_seqlens_k = packed.cu_seqlens_k;
  if (gate.defined()) {
    problem.cast.surrogates = data(surrogates);
    problem.cast.gate = static_cast<const float*>(gate.const_data_ptr());
    problem.cast.layer_of_sequence = layers.layer_of_sequence;
  }
  execution.BeginCompute();
  attention::cuda::Computed computed = attention::cuda::Compute(*variant, spec, problem, device_);
  execution.EndCompute();
  execution.times().backend = computed.backend;

  const int64_t row_bytes = value_row * static_cast<int64_t>(SizeOf(spec.dtype));
  std::vector<Stretch> from;
  for (const attention::cuda::OutputRows& part : computed.outputs) {
    from.push_back({part.first * row_bytes, part.rows.size(0) * row_bytes, data(part.rows)});
    execution.Keep(part.rows);
  }
  std::vector<Stretch> to;
  int64_t first = 0;
  for (const Problem& request : batch.requests) {
    const int64_t bytes = request.query_tokens() * row_bytes;
    to.push_back({first, bytes, request.output});
    first += bytes;
  }
  execution.BeginCopyOut();
  C10_CUDA_CHECK(QueueCopies(PlanCopies(from, to), cudaMemcpyDeviceToHost, streams_.copy_out));
  execution.EndCopyOut();
  return absl::OkStatus();
}

}  // namespace castor

#include "engine/device/cuda/packing/packed_batch.h"

#include <ATen/ops/empty.h>

#include <utility>
#include <variant>

#include "engine/attention/scalar_type.h"

namespace castor {
namespace {

using attention::Problem;

// Appends the copies that concatenate one tensor of each request, `row` bytes per token.
void AppendTensor(const AttentionBatch& batch, const std::byte* Problem::*data,
                  int64_t (Problem::*tokens)() const, int64_t row, std::byte* packed,
                  std::vector<Copy>* copies) {
  for (const Problem& request : batch.requests) {
    const auto bytes = static_cast<size_t>((request.*tokens)() * row);
    if (bytes > 0) copies->push_back({packed, request.*data, bytes});
    packed += bytes;
  }
}

// Appends the copies that concatenate the layers, `bytes` each.
void AppendLayers(const BatchLayers& layers, int64_t bytes, std::byte* packed,
                  std::vector<Copy>* copies) {
  for (const std::byte* layer : layers.layers) {
    copies->push_back({packed, layer, static_cast<size_t>(bytes)});
    packed += bytes;
  }
}

// Appends the copies that concatenate the requests' biases, `heads` per key.
void AppendKeyBiases(const AttentionBatch& batch, int64_t heads, std::byte* packed,
                     std::vector<Copy>* copies) {
  for (const Problem& request : batch.requests) {
    const auto bytes = static_cast<size_t>(request.key_tokens() * heads) * sizeof(float);
    copies->push_back({packed, reinterpret_cast<const std::byte*>(request.key_bias), bytes});
    packed += bytes;
  }
}

// Appends the copies that concatenate the requests' gates, one per token.
void AppendGates(const AttentionBatch& batch, std::byte* packed, std::vector<Copy>* copies) {
  for (const Problem& request : batch.requests) {
    const auto bytes = static_cast<size_t>(request.query_tokens()) * sizeof(float);
    if (bytes > 0) {
      copies->push_back({packed, reinterpret_cast<const std::byte*>(request.cast.gate), bytes});
    }
    packed += bytes;
  }
}

}  // namespace

PackedBatch::PackedBatch(const AttentionBatch& batch, PackedOffsets offsets, at::Device device)
    : batch_(batch),
      offsets_(std::move(offsets)),
      query_row_(batch.spec.heads * batch.spec.head_dim),
      layer_bytes_(batch.spec.surrogates * query_row_ *
                   static_cast<int64_t>(SizeOf(batch.spec.dtype))) {
  const at::ScalarType type = attention::ScalarTypeOf(batch.spec.dtype);
  const int64_t query_tokens = offsets_.cu_seqlens_q.back();
  const int64_t key_tokens = offsets_.cu_seqlens_k.back();
  query_ = Allocate(query_tokens, query_row_, type, device);
  key_ = Allocate(key_tokens, batch.spec.key_row(), type, device);
  value_ = batch.spec.value_is_key_prefix
               ? key_
               : Allocate(key_tokens, batch.spec.value_row(), type, device);
  if (std::holds_alternative<Cast>(batch.spec.kernel)) {
    layers_ = DistinctLayers(batch.requests, layer_bytes_);
    surrogates_ = Allocate(static_cast<int64_t>(layers_.layers.size()),
                           batch.spec.surrogates * query_row_, type, device);
    gate_ = Allocate(query_tokens, 1, at::kFloat, device);
  }
  const attention::Spec& spec = batch.spec;
  for (const Problem& request : batch.requests) {
    places_.insert(places_.end(), request.places.begin(), request.places.end());
  }
  if (spec.key_bias_heads > 0) {
    key_bias_ = Allocate(key_tokens, spec.key_bias_heads, at::kFloat, device);
  }
  if (spec.bias.slopes != nullptr) slopes_ = Allocate(spec.heads, 1, at::kFloat, device);
  if (spec.bias.reach >= 0) {
    table_ = Allocate(spec.heads, 2 * spec.bias.reach + 1, at::kFloat, device);
  }
}

at::Tensor PackedBatch::Allocate(int64_t rows, int64_t row, at::ScalarType type,
                                 at::Device device) {
  return tensors_.emplace_back(
      at::empty({rows, row}, at::TensorOptions().dtype(type).device(device)));
}

std::vector<Copy> PackedBatch::CopiesIn() const {
  const auto element = static_cast<int64_t>(SizeOf(batch_.spec.dtype));
  std::vector<Copy> copies;
  copies.reserve(3 * batch_.requests.size());
  AppendTensor(batch_, &Problem::query, &Problem::query_tokens, query_row_ * element,
               DataOf(query_), &copies);
  AppendTensor(batch_, &Problem::key, &Problem::key_tokens, batch_.spec.key_row() * element,
               DataOf(key_), &copies);
  if (!batch_.spec.value_is_key_prefix) {
    AppendTensor(batch_, &Problem::value, &Problem::key_tokens, batch_.spec.value_row() * element,
                 DataOf(value_), &copies);
  }
  if (gate_.defined()) {
    AppendLayers(layers_, layer_bytes_, DataOf(surrogates_), &copies);
    AppendGates(batch_, DataOf(gate_), &copies);
  }
  const attention::Spec& spec = batch_.spec;
  if (key_bias_.defined()) {
    AppendKeyBiases(batch_, spec.key_bias_heads, DataOf(key_bias_), &copies);
  }
  const auto append = [&](const at::Tensor& to, const float* from) {
    if (!to.defined()) return;
    copies.push_back({DataOf(to), reinterpret_cast<const std::byte*>(from), to.nbytes()});
  };
  append(slopes_, spec.bias.slopes);
  append(table_, spec.bias.table);
  return copies;
}

attention::Spec PackedBatch::spec() const {
  attention::Spec spec = batch_.spec;
  if (slopes_.defined()) spec.bias.slopes = slopes_.const_data_ptr<float>();
  if (table_.defined()) spec.bias.table = table_.const_data_ptr<float>();
  return spec;
}

Problem PackedBatch::problem() const {
  Problem problem;
  problem.query = DataOf(query_);
  problem.key = DataOf(key_);
  problem.value = DataOf(value_);
  problem.query_stride = query_row_;
  problem.key_stride = batch_.spec.key_row();
  problem.value_stride = batch_.spec.value_stride();
  problem.value_head_stride = batch_.spec.value_head_stride();
  problem.output_stride = batch_.spec.heads * batch_.spec.value_dim;
  problem.cu_seqlens_q = offsets_.cu_seqlens_q;
  problem.cu_seqlens_k = offsets_.cu_seqlens_k;
  if (gate_.defined()) {
    problem.cast.surrogates = DataOf(surrogates_);
    problem.cast.gate = static_cast<const float*>(gate_.const_data_ptr());
    problem.cast.layer_of_sequence = layers_.layer_of_sequence;
  }
  problem.places = places_;
  if (key_bias_.defined()) problem.key_bias = key_bias_.const_data_ptr<float>();
  return problem;
}

}  // namespace castor

// Clustered and improved clustered attention on a GPU: ComputeClustered of variants_cuda.h.

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <array>
#include <bit>
#include <cstring>
#include <tuple>
#include <vector>

#include "engine/attention/clustered/clustering.h"
#include "engine/attention/cuda/clustered_shape.h"
#include "engine/attention/cuda/tensors.h"
#include "engine/attention/cuda/variants_cuda.h"
#include "engine/kernels/count.h"
#include "engine/kernels/cuda/clustered/clustered.h"

namespace castor::attention::cuda {
namespace {

using kernels::cuda::ClusteredPlan;
using kernels::cuda::ClusteredProblem;
using kernels::cuda::ClusteredShape;

// The random numbers of a clustering on the device: hash planes, biases and the strata's draws, one
// after another as words.
struct RandomNumbers {
  std::tuple<uint64_t, int, bool, int64_t, int> key;  // seed, bits, bias, dim, clusters
  c10::StreamId stream = 0;
  at::Tensor words;
};

std::vector<uint32_t> DrawWords(const Clustered& clustering, int64_t dim) {
  const PlaneNumbers planes = DrawPlanes(clustering, dim);
  std::vector<uint32_t> words;
  words.reserve(planes.normals.size() + planes.biases.size() + clustering.clusters);
  for (const float normal : planes.normals) words.push_back(std::bit_cast<uint32_t>(normal));
  for (const float bias : planes.biases) words.push_back(std::bit_cast<uint32_t>(bias));
  const std::vector<uint32_t> draws = CentroidDraws(clustering);
  words.insert(words.end(), draws.begin(), draws.end());
  return words;
}

// Drawing takes some 0.3 ms, so the last few are kept. One stream uploads and reads them, so the
// memory of a tensor dropped here is not reused before the kernels that read it have run.
at::Tensor UploadRandomNumbers(const Clustered& clustering, int64_t dim, at::Device device) {
  constexpr size_t kRemembered = 8;
  thread_local std::array<RandomNumbers, kRemembered> remembered;
  thread_local size_t next = 0;
  const std::tuple key(clustering.seed, static_cast<int>(clustering.bits), clustering.hash_bias,
                       dim, static_cast<int>(clustering.clusters));
  const c10::StreamId stream = c10::cuda::getCurrentCUDAStream(device.index()).id();
  for (const RandomNumbers& numbers : remembered) {
    if (numbers.words.defined() && numbers.key == key && numbers.stream == stream &&
        numbers.words.device() == device) {
      return numbers.words;
    }
  }
  const std::vector<uint32_t> words = DrawWords(clustering, dim);
  const at::TensorOptions host = at::TensorOptions().dtype(at::kInt).pinned_memory(true);
  const at::Tensor staging = at::empty({static_cast<int64_t>(words.size())}, host);
  std::memcpy(staging.mutable_data_ptr(), words.data(), words.size() * sizeof(uint32_t));
  const at::Tensor uploaded = staging.to(device, /*non_blocking=*/true);
  remembered[next] = {key, stream, uploaded};
  next = (next + 1) % kRemembered;
  return uploaded;
}

}  // namespace

Computed ComputeClustered(std::string_view backend, const Spec& spec, const Problem& problem,
                          at::Device device) {
  const Clustered& clustering = *ClusteringOf(spec.kernel);
  const ClusteredShape shape = ClusteredShapeOf(spec);
  const ClusteredPlan plan = PlanClustered(shape, problem.cu_seqlens_q, problem.cu_seqlens_k);
  TORCH_CHECK_WITH(OutOfMemoryError,
                   plan.sequences == problem.sequences() && plan.workspace_bytes != Count::kMost,
                   "the batch has more pieces of work than 2^31");
  const at::TensorOptions options = at::TensorOptions().device(device);
  const at::Tensor output = at::empty({problem.query_tokens(), spec.heads, spec.value_dim},
                                      options.dtype(ScalarTypeOf(spec.dtype)));
  const at::Tensor log_sum_exp =
      spec.log_sum_exp ? at::empty({problem.query_tokens(), spec.heads}, options.dtype(at::kFloat))
                       : at::Tensor();
  // All belong to the current stream, so their memory is not reused before the kernels have run.
  const at::Tensor workspace = at::empty({plan.workspace_bytes}, options.dtype(at::kByte));
  // The plan's arrays begin with an offset of 0, so UploadOffsets can upload and cache them.
  const at::Tensor offsets =
      UploadOffsets(plan.offsets, 0, static_cast<int64_t>(plan.offsets.size()) - 1, device);
  const at::Tensor words = UploadRandomNumbers(clustering, spec.head_dim, device);
  ClusteredProblem on_device;
  on_device.query = problem.query;
  on_device.key = problem.key;
  on_device.value = problem.value;
  on_device.output = output.mutable_data_ptr();
  on_device.query_stride = problem.query_stride;
  on_device.key_stride = problem.key_stride;
  on_device.value_stride = problem.value_stride;
  on_device.output_stride = spec.heads * spec.value_dim;
  on_device.value_head_stride = problem.value_head_stride;
  if (spec.log_sum_exp) on_device.log_sum_exp = log_sum_exp.mutable_data_ptr<float>();
  on_device.offsets = offsets.const_data_ptr<int32_t>();
  const auto* const first_word = static_cast<const uint32_t*>(words.const_data_ptr());
  const int64_t plane_words = clustering.bits * spec.head_dim;
  on_device.normals = reinterpret_cast<const float*>(first_word);
  on_device.biases = reinterpret_cast<const float*>(first_word + plane_words);
  on_device.draws = first_word + plane_words + clustering.bits;
  on_device.workspace = workspace.mutable_data_ptr();
  C10_CUDA_CHECK(
      Run(shape, plan, on_device, c10::cuda::getCurrentCUDAStream(device.index()).stream()));
  return {{{0, output, log_sum_exp}}, backend};
}

}  // namespace castor::attention::cuda

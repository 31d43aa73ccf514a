#include "engine/attention/cuda/cast_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "engine/attention/count.h"
#include "engine/attention/cuda/cast_shape.h"
#include "engine/attention/cuda/tensors.h"
#include "engine/kernels/cuda/cast/cast.h"

namespace castor::attention::cuda {
namespace {

using kernels::cuda::CastShape;

// Thread-block clusters and overlapping launches came with Hopper.
bool IsHopper(at::Device device) {
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()));
  return major >= 9;
}

}  // namespace

Computed ComputeCast(std::string_view backend, const Spec& spec, const Problem& problem,
                     at::Device device) {
  const CastShape shape = CastShapeOf(spec);
  const at::TensorOptions options = at::TensorOptions().device(device);
  const at::Tensor output = at::empty({problem.query_tokens(), spec.heads, spec.value_dim},
                                      options.dtype(ScalarTypeOf(spec.dtype)));
  // Both belong to the current stream, so their memory is not reused before the kernels have run.
  const int64_t bytes = kernels::cuda::CastWorkspaceBytes(shape, problem.cu_seqlens_q);
  TORCH_CHECK_WITH(OutOfMemoryError, bytes != Count::kMost,
                   "the batch has more pieces of work than grids hold");
  const at::Tensor workspace = at::empty({bytes}, options.dtype(at::kByte));
  // The tables begin with an offset of 0, so UploadOffsets can upload and cache them.
  const std::vector<int32_t> tables =
      kernels::cuda::MakeCastTables(shape, problem.cu_seqlens_q, problem.cast.layer_of_sequence);
  const at::Tensor uploaded =
      UploadOffsets(tables, 0, static_cast<int64_t>(tables.size()) - 1, device);

  kernels::cuda::CastBatch batch = CastBatchOf(problem);
  batch.output = output.mutable_data_ptr();
  batch.output_stride = spec.heads * spec.value_dim;
  batch.tables = uploaded.const_data_ptr<int32_t>();
  batch.workspace = workspace.mutable_data_ptr();
  batch.cluster_blocks = IsHopper(device) ? 8 : 1;
  batch.early_launches = IsHopper(device);
  C10_CUDA_CHECK(Run(shape, batch, c10::cuda::getCurrentCUDAStream(device.index()).stream()));
  return {{{0, output, {}}}, backend};
}

}  // namespace castor::attention::cuda

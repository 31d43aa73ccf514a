// CudaDevice::LaunchEncoder: uploads a batch's indices, runs the model, brings the rows back.

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <utility>
#include <vector>

#include "engine/attention/scalar_type.h"
#include "engine/base/error.h"
#include "engine/base/run_control.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/packing/copies.h"
#include "engine/device/cuda/packing/packed_batch.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"

namespace castor {
namespace {

// A run's control that counts no compute time at its checkpoints, where other batches go through
// the same stream.
class OwnCompute final : public RunControl {
 public:
  OwnCompute(RunControl& run, CudaExecution& execution)
      : RunControl(Duration::zero()), run_(run), execution_(execution) {}

 private:
  bool WantsCheckpoint() override { return run_.Due(); }
  absl::Status AtCheckpoint() override {
    execution_.EndCompute();
    const absl::Status status = run_.Pause();
    if (status.ok()) execution_.BeginCompute();
    return status;
  }

  RunControl& run_;
  CudaExecution& execution_;
};

}  // namespace

absl::Status CudaDevice::LaunchEncoder(const encoder::Batch& batch, CudaExecution& execution,
                                       RunControl& control) {
  const encoder::Network& network = *batch.model->network();
  const encoder::Packing packing = encoder::Pack(batch);
  absl::StatusOr<HostBuffer> staging =
      host_pool_->Allocate(static_cast<size_t>(packing.index_elements()) * sizeof(int64_t));
  if (!staging.ok()) return staging.status();
  encoder::WriteIndices(batch, packing, network.rules(), staging->as<int64_t>());

  // Inputs are allocated on the copy stream, as in LaunchAttention.
  encoder::Inputs inputs;
  std::vector<Copy> copies;
  {
    const c10::cuda::CUDAStreamGuard guard(streams_.copy_in);
    const auto options = at::TensorOptions().device(device_);
    inputs.indices = at::empty({packing.index_elements()}, options.dtype(at::kLong));
    execution.Keep(inputs.indices);
    copies.push_back({DataOf(inputs.indices), staging->data(), staging->size()});
    inputs.embeddings.resize(batch.items.size());
    for (size_t i = 0; i < batch.items.size(); ++i) {
      const encoder::BatchItem& item = batch.items[i];
      if (item.embeddings == nullptr || item.repeats) continue;
      at::Tensor& rows = inputs.embeddings[i];
      rows = at::empty({item.tokens(), batch.model->info().hidden_size},
                       options.dtype(attention::ScalarTypeOf(item.embeddings_dtype)));
      execution.Keep(rows);
      copies.push_back({DataOf(rows), item.embeddings, rows.nbytes()});
    }
  }
  execution.Keep(*std::move(staging));

  execution.BeginCopyIn();
  C10_CUDA_CHECK(QueueCopies(copies, cudaMemcpyHostToDevice, streams_.copy_in));
  execution.EndCopyIn();

  execution.BeginCompute();
  OwnCompute own_compute(control, execution);
  absl::StatusOr<std::vector<at::Tensor>> outputs =
      network.Forward(batch, packing, inputs, own_compute);
  if (!outputs.ok()) return outputs.status();
  execution.EndCompute();
  execution.times().backend = encoder_backend_;

  copies.clear();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const at::Tensor& rows = (*outputs)[i];
    execution.Keep(rows);
    copies.push_back(
        {reinterpret_cast<std::byte*>(batch.items[i].output), DataOf(rows), rows.nbytes()});
  }
  execution.BeginCopyOut();
  C10_CUDA_CHECK(QueueCopies(copies, cudaMemcpyDeviceToHost, streams_.copy_out));
  execution.EndCopyOut();
  return absl::OkStatus();
}

}  // namespace castor

// CudaDevice::LaunchAttention: packs a batch of attention requests and queues it on the streams, in
// pieces where it is predicted to take long.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <optional>
#include <utility>
#include <vector>

#include "engine/attention/cuda/variants_cuda.h"
#include "engine/base/error.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/launch/pieces.h"
#include "engine/device/cuda/packing/copies.h"
#include "engine/device/cuda/packing/packed_batch.h"

namespace castor {

absl::StatusOr<attention::cuda::Computed> CudaDevice::QueuePieces(const attention::Variant& variant,
                                                                  const attention::Spec& spec,
                                                                  const attention::Problem& batch,
                                                                  CudaExecution& execution,
                                                                  RunControl& control) {
  LaunchPace& pace =
      paces_.try_emplace({&variant, spec.dtype}, LaunchPace(spec.dtype)).first->second;
  const std::vector<Piece> pieces =
      CutBatch(spec, batch, pace.WorkIn(launch_target_us_), [&](int64_t queries, int64_t keys) {
        return attention::cuda::QueryStep(variant, spec, queries, keys);
      });
  attention::cuda::Computed computed;
  double work = 0;
  for (const Piece& piece : pieces) {
    if (&piece != &pieces.front()) {
      // One piece runs and the next waits behind it, so the GPU does not idle; what the control
      // lets pass waits for no more than that one.
      execution.AwaitAllPiecesButLast();
      if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
    }
    execution.BeginCompute();
    const PieceProblem problem(spec, batch, piece);
    computed.Append(attention::cuda::Compute(variant, spec, problem.problem(), device_),
                    piece.first_token);
    execution.EndCompute();
    work += piece.work;
  }
  execution.Teach(pace, work);
  return computed;
}

absl::Status CudaDevice::LaunchAttention(const AttentionBatch& batch, CudaExecution& execution,
                                         RunControl& control) {
  const attention::Spec& spec = batch.spec;
  const attention::Variant* variant = attention::FindVariant(variants(), spec);
  if (variant == nullptr) {
    return MakeError(Reason::kKernelNotAvailable, "no kernel on this device runs this attention");
  }
  absl::StatusOr<PackedOffsets> offsets = PackOffsets(spec, batch.requests);
  if (!offsets.ok()) return offsets.status();

  // The inputs are allocated on the copy stream, so it never waits for memory that an earlier batch
  // still computes in.
  std::optional<PackedBatch> packed;
  {
    const c10::cuda::CUDAStreamGuard guard(streams_.copy_in);
    packed.emplace(batch, *std::move(offsets), device_);
  }
  for (const at::Tensor& tensor : packed->tensors()) execution.Keep(tensor);
  execution.BeginCopyIn();
  C10_CUDA_CHECK(QueueCopies(packed->CopiesIn(), cudaMemcpyHostToDevice, streams_.copy_in));
  execution.EndCopyIn();

  absl::StatusOr<attention::cuda::Computed> computed =
      QueuePieces(*variant, spec, packed->problem(), execution, control);
  if (!computed.ok()) return computed.status();
  execution.times().backend = computed->backend;

  const int64_t row_bytes = spec.heads * spec.value_dim * static_cast<int64_t>(SizeOf(spec.dtype));
  std::vector<Stretch> from;
  for (const attention::cuda::OutputRows& part : computed->outputs) {
    from.push_back({part.first * row_bytes, part.rows.size(0) * row_bytes,
                    static_cast<std::byte*>(part.rows.mutable_data_ptr())});
    execution.Keep(part.rows);
  }
  std::vector<Stretch> to;
  int64_t first = 0;
  for (const attention::Problem& request : batch.requests) {
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

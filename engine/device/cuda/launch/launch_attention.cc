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
#include "engine/device/cuda/launch/launch_work.h"
#include "engine/device/cuda/launch/pieces.h"
#include "engine/device/cuda/packing/copies.h"
#include "engine/device/cuda/packing/packed_batch.h"

namespace castor {
namespace {

// A contiguous tensor that holds the batch's bytes from `first` on.
ByteRange ByteRangeOf(const at::Tensor& tensor, int64_t first) {
  return {first, static_cast<int64_t>(tensor.nbytes()), DataOf(tensor)};
}

}  // namespace

absl::StatusOr<attention::cuda::Computed> CudaDevice::QueuePieces(const attention::Variant& variant,
                                                                  const attention::Spec& spec,
                                                                  const attention::Problem& batch,
                                                                  CudaExecution& execution,
                                                                  RunControl& control) {
  const std::vector<Piece> pieces = CutBatch(
      spec, batch, LaunchWorkIn(launch_target_us_, spec.dtype), [&](int64_t queries, int64_t keys) {
        return attention::cuda::QueryStep(variant, spec, queries, keys);
      });
  attention::cuda::Computed computed;
  for (const Piece& piece : pieces) {
    if (&piece != &pieces.front()) {
      // One piece still runs during the checkpoint, so the GPU does not idle. A launch at the
      // checkpoint waits for that piece alone.
      execution.AwaitAllPiecesButLast();
      if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
    }
    execution.BeginCompute();
    const PieceProblem problem(spec, batch, piece);
    computed.Append(attention::cuda::Compute(variant, spec, problem.problem(), device_),
                    piece.first_token);
    execution.EndCompute();
  }
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
      QueuePieces(*variant, packed->spec(), packed->problem(), execution, control);
  if (!computed.ok()) return computed.status();
  execution.times().backend = computed->backend;

  const int64_t row_bytes = spec.heads * spec.value_dim * static_cast<int64_t>(SizeOf(spec.dtype));
  const int64_t log_bytes = spec.heads * static_cast<int64_t>(sizeof(float));
  std::vector<ByteRange> from;
  std::vector<ByteRange> logs_from;
  for (const attention::cuda::OutputRows& part : computed->outputs) {
    from.push_back(ByteRangeOf(part.rows, part.first * row_bytes));
    execution.Keep(part.rows);
    if (!spec.log_sum_exp) continue;
    logs_from.push_back(ByteRangeOf(part.log_sum_exp, part.first * log_bytes));
    execution.Keep(part.log_sum_exp);
  }
  std::vector<ByteRange> to;
  std::vector<ByteRange> logs_to;
  int64_t first = 0;  // token
  for (const attention::Problem& request : batch.requests) {
    const int64_t tokens = request.query_tokens();
    to.push_back({first * row_bytes, tokens * row_bytes, request.output});
    if (spec.log_sum_exp) {
      logs_to.push_back({first * log_bytes, tokens * log_bytes,
                         reinterpret_cast<std::byte*>(request.log_sum_exp)});
    }
    first += tokens;
  }
  std::vector<Copy> copies = PlanCopies(from, to);
  const std::vector<Copy> logs = PlanCopies(logs_from, logs_to);
  copies.insert(copies.end(), logs.begin(), logs.end());
  execution.BeginCopyOut();
  C10_CUDA_CHECK(QueueCopies(copies, cudaMemcpyDeviceToHost, streams_.copy_out));
  execution.EndCopyOut();
  return absl::OkStatus();
}

}  // namespace castor

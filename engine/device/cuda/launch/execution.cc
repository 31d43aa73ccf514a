#include "engine/device/cuda/launch/execution.h"

#include <cuda_runtime_api.h>

namespace castor {
namespace {

constexpr double kMicrosPerMilli = 1e3;

}  // namespace

CudaExecution::CudaExecution(const Streams& streams, Faults& faults)
    : streams_(streams),
      faults_(faults),
      copy_in_begin_(cudaEventDefault),  // with timing
      copy_in_end_(cudaEventDefault),
      copy_out_begin_(cudaEventDefault),
      copy_out_end_(cudaEventDefault) {}

CudaExecution::~CudaExecution() {
  if (finished_) return;
  // A launch failed half-way, or its result was not waited for. An error is ignored: it means that
  // the device has stopped.
  cudaStreamSynchronize(streams_.copy_in);
  cudaStreamSynchronize(streams_.compute);
  cudaStreamSynchronize(streams_.copy_out);
  cudaGetLastError();
}

void CudaExecution::BeginCompute() {
  if (compute_.empty()) copy_in_end_.block(streams_.compute);
  compute_.emplace_back().begin.record(streams_.compute);
}

void CudaExecution::AwaitAllPiecesButLast() {
  if (compute_.size() > 1) compute_[compute_.size() - 2].end.synchronize();
}

void CudaExecution::BeginCopyOut() {
  compute_.back().end.block(streams_.copy_out);
  copy_out_begin_.record(streams_.copy_out);
}

void CudaExecution::EndCopyOut() {
  copy_out_end_.record(streams_.copy_out);
  launched_ = true;
}

bool CudaExecution::Done() const noexcept {
  if (!launched_ || cudaEventQuery(copy_out_end_) != cudaErrorNotReady) return true;  // or an error
  cudaGetLastError();  // which that was not
  return false;
}

absl::StatusOr<ExecutionTimes> CudaExecution::Wait() {
  const absl::Status status = faults_.Guard([&]() -> absl::Status {
    if (!launched_) return faults_.FromCode(cudaErrorNotReady, "waiting for an unlaunched batch");
    absl::Status waited =
        faults_.FromCode(cudaEventSynchronize(copy_out_end_), "waiting for a batch");
    if (!waited.ok()) return waited;
    finished_ = true;
    times_.copy_in_us = copy_in_begin_.elapsed_time(copy_in_end_) * kMicrosPerMilli;
    for (const ComputeSpan& span : compute_) {
      times_.compute_us += span.begin.elapsed_time(span.end) * kMicrosPerMilli;
    }
    times_.copy_out_us = copy_out_begin_.elapsed_time(copy_out_end_) * kMicrosPerMilli;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  tensors_.clear();
  buffers_.clear();
  return times_;
}

}  // namespace castor

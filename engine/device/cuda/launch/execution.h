// One launched batch: its events on the three streams, and the tensors it works in.
//
// A batch is computed in one piece or in several, between which other launches may use the streams.
// Each execution has its own events, and counts only the time of its own pieces.
//
// Made and waited for on the engine thread. It owns every tensor that more than one stream touches
// until the last event has passed; so the caching allocator, which orders reuse within a stream
// only, can never hand out memory that another stream still works in.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/host_memory.h"
#include "engine/device/cuda/faults.h"
#include "engine/device/device.h"

namespace castor {

// The stages of a batch, in this order, each on its own stream.
struct Streams {
  c10::cuda::CUDAStream copy_in;
  c10::cuda::CUDAStream compute;
  c10::cuda::CUDAStream copy_out;
};

class CudaExecution : public Execution {
 public:
  CudaExecution(const Streams& streams, Faults& faults);

  // Waits for the streams if Wait has not succeeded: afterwards nothing reads or writes staging
  // memory.
  ~CudaExecution() override;

  bool Done() const noexcept override;
  absl::StatusOr<ExecutionTimes> Wait() override;

  // The stages of a launch, in order. Each Begin makes its stream wait for the stage before.
  // Compute is begun and ended once for every piece. May throw.
  void BeginCopyIn() { copy_in_begin_.record(streams_.copy_in); }
  void EndCopyIn() { copy_in_end_.record(streams_.copy_in); }
  void BeginCompute();
  void EndCompute() { compute_.back().end.record(streams_.compute); }
  void BeginCopyOut();
  void EndCopyOut();

  // Blocks until the GPU has computed all pieces queued so far but the last. May throw.
  void AwaitAllPiecesButLast();

  // Keeps these until the execution has finished.
  void Keep(at::Tensor tensor) { tensors_.push_back(std::move(tensor)); }
  void Keep(HostBuffer buffer) { buffers_.push_back(std::move(buffer)); }

  ExecutionTimes& times() { return times_; }

 private:
  struct ComputeSpan {
    c10::cuda::CUDAEvent begin{cudaEventDefault};  // with timing
    c10::cuda::CUDAEvent end{cudaEventDefault};
  };

  const Streams streams_;
  Faults& faults_;

  c10::cuda::CUDAEvent copy_in_begin_;
  c10::cuda::CUDAEvent copy_in_end_;
  c10::cuda::CUDAEvent copy_out_begin_;
  c10::cuda::CUDAEvent copy_out_end_;
  std::vector<ComputeSpan> compute_;  // a piece each
  bool launched_ = false;             // EndCopyOut has been reached
  bool finished_ = false;             // nothing of this batch runs any more

  ExecutionTimes times_;
  std::vector<at::Tensor> tensors_;
  std::vector<HostBuffer> buffers_;
};

}  // namespace castor

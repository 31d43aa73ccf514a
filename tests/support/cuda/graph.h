// Replays work from a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "tests/support/cuda/device_memory.h"

namespace castor {

// Captures the work that `queue(stream)`, which returns a cudaError_t, queues, and replays it a few
// times into a cleared `output`. Returns whether each replay writes the same bytes that `output`
// holds now.
template <typename Queue>
bool ReplaysTheSame(const DeviceMemory& output, Queue queue) {
  constexpr int kReplays = 3;
  const auto before = output.Read<std::byte>();
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  bool same = cudaStreamCreate(&stream) == cudaSuccess &&
              cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
  if (same) {
    same = queue(stream) == cudaSuccess;
    // End the capture even when queueing failed.
    same = cudaStreamEndCapture(stream, &graph) == cudaSuccess && same;
  }
  same = same && cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess;
  for (int i = 0; same && i < kReplays; ++i) {
    output.Clear();
    same = cudaGraphLaunch(executable, stream) == cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess && output.Read<std::byte>() == before;
  }
  if (executable != nullptr) cudaGraphExecDestroy(executable);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (stream != nullptr) cudaStreamDestroy(stream);
  return same;
}

}  // namespace castor

// Copies between the requests' pinned staging memory and the batch's packed device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace castor {

struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;
};

// A range of the batch's output bytes: one request's in host memory, or one tensor's in device
// memory. Both cover [0, total) in order.
struct ByteRange {
  int64_t first = 0;  // byte of the batch
  int64_t bytes = 0;
  std::byte* data = nullptr;
};

// The copies that bring `from` to `to`, split at the borders of both. Pure.
std::vector<Copy> PlanCopies(std::span<const ByteRange> from, std::span<const ByteRange> to);

// Queues the copies on `stream`, in no particular order among themselves. Host memory must be
// pinned and stay untouched until the stream is past them.
cudaError_t QueueCopies(std::span<const Copy> copies, cudaMemcpyKind kind, cudaStream_t stream);

}  // namespace castor

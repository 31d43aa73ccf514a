#include "engine/device/cuda/packing/copies.h"

#include <algorithm>

namespace castor {
namespace {

// With this many copies or more, one driver call for all is faster than a call of 1 to 2 us each.
constexpr size_t kBatchFrom = 4;

// One call for all copies. Drivers and platforms without it return an error and copy nothing.
cudaError_t QueueTogether(std::span<const Copy> copies, cudaStream_t stream) {
  std::vector<void*> to(copies.size());
  std::vector<const void*> from(copies.size());
  std::vector<size_t> bytes(copies.size());
  for (size_t i = 0; i < copies.size(); ++i) {
    to[i] = copies[i].to;
    from[i] = copies[i].from;
    bytes[i] = copies[i].bytes;
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first_of_attributes = 0;
  return cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), copies.size(), &attributes,
                              &first_of_attributes, 1, stream);
}

}  // namespace

std::vector<Copy> PlanCopies(std::span<const ByteRange> from, std::span<const ByteRange> to) {
  std::vector<Copy> copies;
  size_t f = 0;
  size_t t = 0;
  while (f < from.size() && t < to.size()) {
    const int64_t first = std::max(from[f].first, to[t].first);
    const int64_t from_end = from[f].first + from[f].bytes;
    const int64_t to_end = to[t].first + to[t].bytes;
    const int64_t end = std::min(from_end, to_end);
    if (end > first) {
      copies.push_back({to[t].data + (first - to[t].first), from[f].data + (first - from[f].first),
                        static_cast<size_t>(end - first)});
    }
    if (from_end == end) ++f;
    if (to_end == end) ++t;
  }
  return copies;
}

cudaError_t QueueCopies(std::span<const Copy> copies, cudaMemcpyKind kind, cudaStream_t stream) {
  if (copies.size() >= kBatchFrom) {
    if (QueueTogether(copies, stream) == cudaSuccess) return cudaSuccess;
    cudaGetLastError();  // copy one by one instead; a real fault shows up there again
  }
  for (const Copy& copy : copies) {
    const cudaError_t error = cudaMemcpyAsync(copy.to, copy.from, copy.bytes, kind, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace castor

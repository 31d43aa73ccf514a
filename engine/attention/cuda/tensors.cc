#include "engine/attention/cuda/tensors.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/TensorOptions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace castor::attention::cuda {
namespace {

constexpr int64_t kVectorBytes = 16;  // what cp.async and the wide loads of the kernels move

bool IsAligned(const at::Tensor& rows) {
  const int64_t size = rows.element_size();
  return reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % kVectorBytes == 0 &&
         rows.stride(0) * size % kVectorBytes == 0 && rows.stride(1) * size % kVectorBytes == 0 &&
         rows.stride(2) == 1;
}

// Offsets on the device, cached by value. One stream allocates and reads them, so the memory of a
// tensor dropped here is not reused before the kernels that read it have run.
struct Upload {
  std::vector<int32_t> values;
  c10::StreamId stream = 0;
  at::Tensor tensor;
};
constexpr size_t kRemembered = 4;  // query and key offsets of this batch and the one before

}  // namespace

at::Tensor ViewOf(const std::byte* data, int64_t tokens, int64_t heads, int64_t dim, int64_t stride,
                  DType dtype, at::Device device) {
  return ViewOf(data, tokens, heads, dim, stride, dim, dtype, device);
}

at::Tensor ViewOf(const std::byte* data, int64_t tokens, int64_t heads, int64_t dim, int64_t stride,
                  int64_t head_stride, DType dtype, at::Device device) {
  const std::array<int64_t, 3> sizes = {tokens, heads, dim};
  const std::array<int64_t, 3> strides = {stride, head_stride, 1};
  // Naming the device saves a look-up of the pointer in the driver.
  return at::for_blob(const_cast<std::byte*>(data), sizes)
      .strides(strides)
      .options(at::TensorOptions().dtype(ScalarTypeOf(dtype)).device(device))
      .target_device(device)
      .make_tensor();
}

at::Tensor AlignedRows(const at::Tensor& rows, int64_t dim) {
  if (rows.size(2) < dim) return at::constant_pad_nd(rows, {0, dim - rows.size(2)}, 0);
  return IsAligned(rows) ? rows : rows.clone(at::MemoryFormat::Contiguous);
}

int64_t AlignedDim(int64_t dim, DType dtype) {
  const int64_t unit = kVectorBytes / static_cast<int64_t>(SizeOf(dtype));
  return (dim + unit - 1) / unit * unit;
}

at::Tensor UploadOffsets(std::span<const int32_t> cu_seqlens, int64_t first, int64_t count,
                         at::Device device) {
  thread_local std::array<Upload, kRemembered> remembered;
  thread_local size_t next = 0;

  std::vector<int32_t> values(count + 1);
  for (int64_t s = 0; s <= count; ++s) values[s] = cu_seqlens[first + s] - cu_seqlens[first];
  const c10::StreamId stream = c10::cuda::getCurrentCUDAStream(device.index()).id();
  for (const Upload& upload : remembered) {
    if (upload.tensor.defined() && upload.stream == stream && upload.values == values &&
        upload.tensor.device() == device) {
      return upload.tensor;
    }
  }
  // LibTorch's pinned allocator holds the staging block until the copy has run.
  const at::TensorOptions host = at::TensorOptions().dtype(at::kInt).pinned_memory(true);
  at::Tensor staging = at::empty({count + 1}, host);
  std::memcpy(staging.mutable_data_ptr(), values.data(), values.size() * sizeof(int32_t));
  at::Tensor uploaded = staging.to(device, /*non_blocking=*/true);
  remembered[next] = {std::move(values), stream, uploaded};
  next = (next + 1) % kRemembered;
  return uploaded;
}

int64_t LongestSequence(std::span<const int32_t> cu_seqlens, int64_t first, int64_t count) {
  int32_t longest = 0;
  for (int64_t s = first; s < first + count; ++s) {
    longest = std::max(longest, cu_seqlens[s + 1] - cu_seqlens[s]);
  }
  return longest;
}

}  // namespace castor::attention::cuda

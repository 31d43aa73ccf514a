// Tensors over the raw pointers of a Problem, shaped and aligned as LibTorch's kernels want them.
//
// Called on the device's engine thread with its stream current. May throw what LibTorch throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "engine/attention/problem.h"

namespace castor::attention::cuda {

// A view of `tokens` tokens, [tokens, heads, dim]; `stride` in elements from token to token, and
// `head_stride`, which is `dim` if it is left out, from head to head. The tensor does not own the
// memory.
at::Tensor ViewOf(const std::byte* data, int64_t tokens, int64_t heads, int64_t dim, int64_t stride,
                  DType dtype, at::Device device);
at::Tensor ViewOf(const std::byte* data, int64_t tokens, int64_t heads, int64_t dim, int64_t stride,
                  int64_t head_stride, DType dtype, at::Device device);

// `rows`, [tokens, heads, dim], such that 16-byte loads of its rows are allowed and the last
// dimension is `dim`: itself if that holds, otherwise a copy, padded with zeros if it is too
// narrow. Zeros in query and key add nothing to a score, and zero columns of value are cut off
// again, so the result is exact.
at::Tensor AlignedRows(const at::Tensor& rows, int64_t dim);

// `dim` rounded up to a multiple of 16 bytes, in elements.
int64_t AlignedDim(int64_t dim, DType dtype);

// Offsets of `count` sequences from `first` on, made relative to the first one's start, int32
// [count + 1] on `device`. The upload goes through pinned memory and does not wait. The last few
// uploads are cached, so a model's layers upload their offsets once.
at::Tensor UploadOffsets(std::span<const int32_t> cu_seqlens, int64_t first, int64_t count,
                         at::Device device);

// The longest of those sequences.
int64_t LongestSequence(std::span<const int32_t> cu_seqlens, int64_t first, int64_t count);

}  // namespace castor::attention::cuda

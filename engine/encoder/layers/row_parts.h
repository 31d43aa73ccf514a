// What layers do to rows between products, in place, cut over a CPU's team of threads
// (kernels/cpu/row_parts.h). Elsewhere it is LibTorch's.
//
// Called on the device's engine thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace castor::encoder {

// y *= x: both [rows, width], contiguous, float32 or bfloat16.
void MultiplyRows(const at::Tensor& y, const at::Tensor& x);

// Turns the first `heads` heads of each row: element e of a head, of as many as `cos` has columns,
// with element e + half by the row's angle e. `rows` is [rows, any], each contiguous, float32 or
// bfloat16; `cos` and `sin` are [rows, half], contiguous, float32. False, and nothing is done,
// without a kernel.
bool TurnRows(const at::Tensor& rows, int64_t heads, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace castor::encoder

// From the last layer's rows to what requests asked for: pooling, cut, normalising.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/encoder/batch.h"
#include "engine/encoder/packing.h"

namespace castor::encoder {

// `rows` is [tokens, hidden] in any floating dtype, `offsets` int64 [sequences + 1] on the same
// device. Returns one float32 tensor per item, contiguous, as Model::Forward promises. Sums are in
// float32. Items that want the same share the work; none changes another's result.
std::vector<at::Tensor> ReadOut(const at::Tensor& rows, const at::Tensor& offsets,
                                const Batch& batch, const Packing& packing);

}  // namespace castor::encoder

// ColBERT's MaxSim of a query and its documents (Khattab and Zaharia 2020, equation 3).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "engine/base/run_control.h"

namespace castor::encoder {

// The bytes that a step of MaxSim allocates, however many rows there are.
int64_t MaxSimBytes(int64_t width);

// [documents, 1], float32: a document's score is the sum, over the query's rows, of the greatest
// product with one of the document's rows. It is NaN if one of these products is.
//
// rows: [tokens, width], float32, contiguous; the first sequence is the query, the others are
// documents. cu_seqlens: [sequences + 1], from 0; `offsets` has the same, int64, on the rows'
// device. A document's score does not depend on the others. Checks the control between steps.
absl::StatusOr<at::Tensor> MaxSim(const at::Tensor& rows, std::span<const int32_t> cu_seqlens,
                                  const at::Tensor& offsets, RunControl& control);

}  // namespace castor::encoder

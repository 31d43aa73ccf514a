// Pooling of spans: any ranges of a batch's rows, which may overlap. One row may be read as many
// times as there are spans over it, so this can be most of a batch's work.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/base/run_control.h"
#include "engine/request.h"

namespace castor::encoder {

// [spans, hidden], float32; zeros for a span of no rows. rows: [tokens, hidden]. spans: int64
// [2, spans], first rows and lengths, of `span_rows` rows together. Sums of many rows are in double
// precision on a CPU. Checks the control between steps.
absl::StatusOr<at::Tensor> PoolSpans(Pooling pooling, const at::Tensor& rows,
                                     const at::Tensor& spans, int64_t span_rows,
                                     RunControl& control);

}  // namespace castor::encoder

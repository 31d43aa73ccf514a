// Answers over disjoint sets of keys, merged into the answer over all of them: for keys that are
// sharded over servers, cached apart, or partly the caller's own.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "castor/v1/attention.pb.h"

namespace castor::client {

// For each row, with L_p the log-sum-exp of part p, m = max_p L_p and w_p = exp(L_p - m):
//
//   output = sum_p w_p output_p / sum_p w_p      log_sum_exp = m + ln sum_p w_p
//
// A part in which the row sees no key, with L_p = -Inf, adds nothing, whatever its output holds; if
// all parts are such, the row is zeros and -Inf. NaN and +Inf give NaN. Sums are in double
// precision, rounded once to the outputs' dtype. So the order of the parts and merging in stages
// change results by rounding alone.
//
// Reads `output` (FLOAT32, FLOAT16 or BFLOAT16, as `raw`) and `log_sum_exp` of each part, which
// have the same dtypes and shapes; returns these two. INVALID_ARGUMENT names the part that does not
// fit, counted from 0. Any thread.
absl::StatusOr<v1::AttendResponse> MergeAttention(std::span<const v1::AttendResponse> parts);

}  // namespace castor::client

#include "engine/encoder/heads/span_pooling.h"

#include <ATen/ops/_embedding_bag_forward_only.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/attention/parallel.h"

namespace castor::encoder {
namespace {

// Sums of so many rows are in float32, and theirs in double precision.
constexpr int64_t kSumRows = 64;

// out [hidden]: of `count` rows, which follow one another. sum, total: [hidden], scratch.
void Mean(const float* rows, int64_t count, int64_t hidden, bool weighted, float* sum,
          double* total, float* out) {
  std::fill_n(total, hidden, 0.0);
  for (int64_t first = 0; first < count; first += kSumRows) {
    std::fill_n(sum, hidden, 0.0f);
    for (int64_t r = first; r < std::min(count, first + kSumRows); ++r) {
      const float weight = weighted ? static_cast<float>(r + 1) : 1.0f;
      const float* const row = rows + r * hidden;
      for (int64_t e = 0; e < hidden; ++e) sum[e] += weight * row[e];
    }
    for (int64_t e = 0; e < hidden; ++e) total[e] += sum[e];
  }
  const auto n = static_cast<double>(count);
  const double weights = weighted ? n * (n + 1) / 2 : n;
  for (int64_t e = 0; e < hidden; ++e) out[e] = static_cast<float>(total[e] / weights);
}

// A value that is no number stays.
void Maximum(const float* rows, int64_t count, int64_t hidden, float* out) {
  std::copy_n(rows, hidden, out);
  for (int64_t r = 1; r < count; ++r) {
    const float* const row = rows + r * hidden;
    for (int64_t e = 0; e < hidden; ++e) {
      const bool replaces = row[e] > out[e] || row[e] != row[e];
      out[e] = replaces ? row[e] : out[e];
    }
  }
}

// The first span of each task, and the end: tasks of about equally many rows.
std::vector<int64_t> TasksOf(const int64_t* lengths, int64_t spans, int64_t hidden) {
  const auto rows_of_task =
      static_cast<int64_t>(attention::kStepOperations / static_cast<double>(hidden)) + 1;
  std::vector<int64_t> begins = {0};
  int64_t rows = 0;
  for (int64_t s = 0; s < spans; ++s) {
    rows += lengths[s] + 1;  // one for the span itself
    if (rows < rows_of_task) continue;
    begins.push_back(s + 1);
    rows = 0;
  }
  if (begins.back() != spans) begins.push_back(spans);
  return begins;
}

absl::StatusOr<at::Tensor> ReduceOnCpu(Pooling pooling, const at::Tensor& rows,
                                       const at::Tensor& spans, int64_t span_rows,
                                       RunControl& control) {
  const at::Tensor values = rows.to(at::kFloat).contiguous();
  const int64_t hidden = values.size(1);
  const int64_t count = spans.size(1);
  at::Tensor pooled = at::empty({count, hidden}, values.options());
  const auto* const from = values.const_data_ptr<float>();
  const auto* const firsts = spans.const_data_ptr<int64_t>();
  const int64_t* const lengths = firsts + count;
  auto* const to = pooled.mutable_data_ptr<float>();
  const std::vector<int64_t> begins = TasksOf(lengths, count, hidden);
  const auto workers = static_cast<size_t>(attention::ParallelWorkers());
  std::vector<float> sums(workers * static_cast<size_t>(hidden));
  std::vector<double> totals(workers * static_cast<size_t>(hidden));
  const auto pool = [&](int worker, int64_t task) {
    for (int64_t s = begins[static_cast<size_t>(task)]; s < begins[static_cast<size_t>(task) + 1];
         ++s) {
      float* const out = to + s * hidden;
      if (lengths[s] == 0) {
        std::fill_n(out, hidden, 0.0f);
      } else if (pooling == Pooling::kMaximum) {
        Maximum(from + firsts[s] * hidden, lengths[s], hidden, out);
      } else {
        Mean(from + firsts[s] * hidden, lengths[s], hidden, pooling == Pooling::kWeightedMean,
             sums.data() + worker * hidden, totals.data() + worker * hidden, out);
        if (pooling == Pooling::kMeanSqrtLength) {
          const float root = std::sqrt(static_cast<float>(lengths[s]));
          for (int64_t d = 0; d < hidden; ++d) out[d] *= root;
        }
      }
    }
  };
  absl::Status status = attention::ParallelFor(
      static_cast<int64_t>(begins.size()) - 1,
      static_cast<double>(span_rows + count) * static_cast<double>(hidden), control, pool);
  if (!status.ok()) return status;
  return pooled;
}

// No row is copied, only indices, one per row of each span.
at::Tensor ReduceElsewhere(Pooling pooling, const at::Tensor& rows, const at::Tensor& first,
                           const at::Tensor& lengths, int64_t span_rows) {
  constexpr int64_t kSum = 0, kMean = 1, kMax = 2;
  const auto spread = [&](const at::Tensor& values) {
    return at::repeat_interleave(values, lengths, /*dim=*/0, /*output_size=*/span_rows);
  };
  const at::Tensor starts = lengths.cumsum(0).sub_(lengths);  // among the indices
  const at::Tensor numbers = at::arange(span_rows, first.options());
  const at::Tensor indices = spread(first.sub(starts)).add_(numbers);
  const bool weighted = pooling == Pooling::kWeightedMean;
  std::optional<at::Tensor> weights;
  if (weighted) weights = numbers.add(1).sub_(spread(starts)).to(at::kFloat);
  const int64_t mode = pooling == Pooling::kMaximum ? kMax : weighted ? kSum : kMean;
  at::Tensor pooled = std::get<0>(at::_embedding_bag_forward_only(
      rows.to(at::kFloat), indices, starts, /*scale_grad_by_freq=*/false, mode, /*sparse=*/false,
      weights));
  if (pooling == Pooling::kMeanSqrtLength) {
    return pooled.mul_(lengths.to(at::kFloat).sqrt_().unsqueeze(1));
  }
  if (!weighted) return pooled;
  const at::Tensor sums = lengths.mul(lengths.add(1)).div(2, "floor").clamp_min(1);
  return pooled.div_(sums.to(at::kFloat).unsqueeze(1));
}

}  // namespace

absl::StatusOr<at::Tensor> PoolSpans(Pooling pooling, const at::Tensor& rows,
                                     const at::Tensor& spans, int64_t span_rows,
                                     RunControl& control) {
  const at::Tensor first = spans.select(0, 0), lengths = spans.select(0, 1);
  if (span_rows == 0) {
    return at::zeros({first.size(0), rows.size(1)}, rows.options().dtype(at::kFloat));
  }
  if (pooling == Pooling::kCls || pooling == Pooling::kLastToken) {
    const at::Tensor which =
        pooling == Pooling::kCls ? first : first.add(lengths).sub_(1).clamp_min_(0);
    return at::index_select(rows, 0, which)
        .to(at::kFloat)
        .masked_fill_(lengths.eq(0).unsqueeze(1), 0);
  }
  if (rows.device().is_cpu()) return ReduceOnCpu(pooling, rows, spans, span_rows, control);
  return ReduceElsewhere(pooling, rows, first, lengths, span_rows);
}

}  // namespace castor::encoder

#include "engine/encoder/heads/max_sim.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/layers/linear.h"

namespace castor::encoder {
namespace {

// Rows of the query in a step. The number is fixed, so that no document changes another's score.
constexpr int64_t kQueries = 512;

// [documents, columns]: the maximum over each document's rows, which lie between `offsets`.
absl::StatusOr<at::Tensor> Greatest(const at::Tensor& products, const at::Tensor& offsets,
                                    RunControl& control) {
  if (!products.device().is_cpu()) return Pool(Pooling::kMaximum, products, offsets);
  const at::Tensor spans = at::stack({offsets.narrow(0, 0, offsets.size(0) - 1), offsets.diff()});
  return PoolSpans(Pooling::kMaximum, products, spans, products.size(0), control);
}

}  // namespace

int64_t MaxSimBytes(int64_t width) {
  // The query's rows are kept packed. Products and their maxima are held twice.
  return (kQueries * width + 4 * kMostHeadRows * kQueries) * int64_t{sizeof(float)};
}

absl::StatusOr<at::Tensor> MaxSim(const at::Tensor& rows, std::span<const int32_t> cu_seqlens,
                                  const at::Tensor& offsets, RunControl& control) {
  const std::span<const int32_t> ends = cu_seqlens.subspan(2);  // the documents' ends
  const int64_t queries = cu_seqlens[1], tokens = cu_seqlens.back(), width = rows.size(1);
  const int64_t step = HeadRows(rows, kQueries * width);
  at::Tensor scores = at::zeros({std::ssize(ends)}, rows.options());
  for (int64_t query = 0; query < queries; query += kQueries) {
    const Linear products(rows.narrow(0, query, std::min(kQueries, queries - query)), {});
    at::Tensor sums = at::zeros(scores.sizes(), rows.options());
    at::Tensor greatest;  // maxima of the last step's documents
    for (int64_t first = queries; first < tokens; first += step) {
      const int64_t count = std::min(step, tokens - first);
      const auto document = [&](int64_t row) {  // the document of a row
        return std::ranges::upper_bound(ends, row) - ends.begin();
      };
      const int64_t begin = document(first), documents = document(first + count - 1) + 1 - begin;
      absl::StatusOr<at::Tensor> found = Greatest(
          products(rows.narrow(0, first, count)),
          offsets.narrow(0, 1 + begin, documents + 1).sub(first).clamp_(0, count), control);
      if (!found.ok()) return found;
      if (cu_seqlens[1 + begin] < first) {  // the document began in the last step
        at::Tensor continued = found->select(0, 0);
        at::maximum_out(continued, continued, greatest.select(0, -1));
      }
      greatest = *std::move(found);
      sums.narrow(0, begin, documents).copy_(greatest.sum(1));
      if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
    }
    scores.add_(sums);
  }
  return scores.unsqueeze(1);
}

}  // namespace castor::encoder

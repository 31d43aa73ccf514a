#include "engine/encoder/heads/pooling.h"

#include <ATen/ops/_embedding_bag_forward_only.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/attention/parallel.h"
#include "engine/encoder/heads/dense.h"
#include "engine/encoder/layers/linear.h"
#include "engine/encoder/text/spans.h"

namespace castor::encoder {
namespace {

constexpr auto kPoolingCount = static_cast<int64_t>(std::size(kAllPoolings));

// The rows that an item wants. Items with equal wishes are computed together.
struct Wish {
  EncodeOutput output;
  bool spans;       // of spans, not of sequences
  Pooling pooling;  // kMean for token embeddings, which have none
  bool normalize;
  int64_t dimensions;  // of an output row; 0, for rows that are compared: all
  bool cut_last;

  auto operator<=>(const Wish&) const = default;
};

Wish WishOf(const BatchItem& item) {
  const bool pooled = item.output_kind == EncodeOutput::kPooled;
  const bool compared = item.output_kind == EncodeOutput::kMaxSim;
  return {item.output_kind, pooled && !item.spans.empty(),  pooled ? item.pooling : Pooling::kMean,
          item.normalize,   compared ? 0 : item.dimensions, item.cut_last};
}

// Reduces each column of each sequence. Uses no atomics on any device: one thread reduces a column
// of a sequence, in order.
at::Tensor Reduce(const at::Tensor& rows, const char* how, const at::Tensor& offsets) {
  return at::segment_reduce(rows.to(at::kFloat), how, /*lengths=*/{}, /*indices=*/{}, offsets,
                            /*axis=*/0, /*unsafe=*/true);
}

// The n-th row of a sequence has the weight n, from 1.
at::Tensor WeightedMean(const at::Tensor& rows, const at::Tensor& first, const at::Tensor& lengths,
                        const at::Tensor& offsets) {
  const int64_t tokens = rows.size(0);
  const at::Tensor weights =
      at::arange(1, tokens + 1, first.options())
          .sub_(at::repeat_interleave(first, lengths, /*dim=*/0, /*output_size=*/tokens))
          .to(at::kFloat);
  const at::Tensor sums = Reduce(rows.to(at::kFloat).mul(weights.unsqueeze(1)), "sum", offsets);
  return sums.div(lengths.mul(lengths.add(1)).div(2, "floor").to(at::kFloat).unsqueeze(1));
}

// The rows of `x` scaled to unit length, in float32; rows of zeros stay zeros.
at::Tensor Normalized(const at::Tensor& x) {
  constexpr double kEpsilon = 1e-12;  // as in torch.nn.functional.normalize
  const at::Tensor norms = at::linalg_vector_norm(x, 2, /*dim=*/{1}, /*keepdim=*/true);
  return x.div(norms.clamp_min(kEpsilon));
}

// ---- MaxSim of a query and its documents, of ColBERT (Khattab and Zaharia 2020, equation 3).

// Rows of the query in a step. The number is fixed, so that no document changes another's score.
constexpr int64_t kQueries = 512;

// [documents, columns]: the maximum over each document's rows, which lie between `offsets`.
absl::StatusOr<at::Tensor> Greatest(const at::Tensor& products, const at::Tensor& offsets,
                                    RunControl& control) {
  if (!products.device().is_cpu()) return Pool(Pooling::kMaximum, products, offsets);
  const at::Tensor spans = at::stack({offsets.narrow(0, 0, offsets.size(0) - 1), offsets.diff()});
  return PoolSpans(Pooling::kMaximum, products, spans, products.size(0), control);
}

// The bytes that a step of MaxSim allocates, however many rows there are.
int64_t MaxSimBytes(int64_t width) {
  // The query's rows are kept packed. Products and their maxima are held twice.
  return (kQueries * width + 4 * kMostHeadRows * kQueries) * int64_t{sizeof(float)};
}

// [documents, 1], float32: a document's score is the sum, over the query's rows, of the greatest
// product with one of the document's rows. It is NaN if one of these products is.
//
// rows: [tokens, width], float32, contiguous; the first sequence is the query, the others are
// documents. cu_seqlens: [sequences + 1], from 0; `offsets` has the same, int64, on the rows'
// device. A document's score does not depend on the others. Checks the control between steps.
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

// Indices from host memory.
template <typename T>
at::Tensor OnDevice(std::span<const T> values, const HeadInputs& in) {
  return at::from_blob(const_cast<T*>(values.data()), {std::ssize(values)},  // only read
                       c10::CppTypeToScalarType<T>::value)
      .to(in.rows.device());
}

}  // namespace

at::Tensor Pool(Pooling pooling, const at::Tensor& rows, const at::Tensor& offsets) {
  const int64_t sequences = offsets.size(0) - 1;
  const at::Tensor first = offsets.narrow(0, 0, sequences), end = offsets.narrow(0, 1, sequences);
  switch (pooling) {
    case Pooling::kMean:
      return Reduce(rows, "mean", offsets);
    case Pooling::kCls:
      return at::index_select(rows, 0, first).to(at::kFloat);
    case Pooling::kLastToken:
      return at::index_select(rows, 0, end.sub(1)).to(at::kFloat);
    case Pooling::kMaximum:
      return Reduce(rows, "max", offsets);
    case Pooling::kWeightedMean:
      return WeightedMean(rows, first, end.sub(first), offsets);
    case Pooling::kMeanSqrtLength:
      return Reduce(rows, "sum", offsets).div_(end.sub(first).to(at::kFloat).sqrt_().unsqueeze(1));
    case Pooling::kSeveral:
      break;
  }
  return {};
}

PoolingHead::PoolingHead(std::vector<Pooling> poolings, int64_t hidden, bool normalize,
                         DenseStack dense, DenseStack of_tokens)
    : poolings_(std::move(poolings)), dense_(std::move(dense)), of_tokens_(std::move(of_tokens)) {
  const bool several = poolings_.size() > 1;
  info_ = {.outputs = {EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings},
           .pooling = several ? Pooling::kSeveral : Pooling::kMean,
           .normalize = normalize,
           .pooled_size = dense_.out(),
           .token_size = of_tokens_.out()};
  if (poolings_.empty()) info_.outputs = {EncodeOutput::kTokenEmbeddings};
  if (poolings_.size() == 1) info_.pooling = poolings_.front();
  if (several && info_.pooled_size == 0) {
    info_.pooled_size = static_cast<int64_t>(poolings_.size()) * hidden;
  }
}

HeadActivations PoolingHead::activations(int64_t hidden, DType dtype) const {
  const bool converts = dtype != DType::kFloat32;
  const kernels::Count row = kernels::Count(hidden) * static_cast<int64_t>(SizeOf(dtype));
  const kernels::Count in_float = kernels::Count(hidden) * static_cast<int64_t>(sizeof(float));
  HeadActivations bytes;
  // All rows of a batch are reduced in float32, even if only some requests want it, and are copied
  // for a weighted mean. Each pooling is kept; a group's part of it is copied and scaled.
  // Concatenated poolings are copied and scaled as well.
  const auto several = poolings_.size() > 1 ? static_cast<int64_t>(3 * poolings_.size()) : 0;
  const kernels::Count kept = kPoolingCount + 2 + several;
  constexpr int64_t kIndices = 4 * sizeof(int64_t);  // and weights, of a token or a sequence
  bytes.pooled = {.token = (converts ? 2 : 1) * in_float + kIndices,
                  .sequence = kept * in_float + kIndices + kPoolingCount * dense_.row_bytes()};
  // The same, and indices and weights of the spans' rows, whose number is bounded. Each pooling is
  // kept once more, and a maximum comes with the rows in which it was found.
  constexpr int64_t kSpanRows = kMostSpanRows * 8 * sizeof(int64_t);
  bytes.spans = {.token = bytes.pooled.token + kSpanRows,
                 .sequence = bytes.pooled.sequence,
                 .span = bytes.pooled.sequence + 3 * in_float + kSpanRows};
  // Token rows of a group are copied, converted and scaled.
  bytes.tokens = {.token = row + in_float + (converts ? in_float : 0) + kIndices,
                  .sequence = poolings_.empty() ? kernels::Count(0) : bytes.pooled.sequence};
  if (!of_tokens_.empty()) {
    // All rows are projected; those of a group are copied and scaled, and those with a row copied.
    bytes.tokens.token += of_tokens_.row_bytes() + 4 * kernels::Count(of_tokens_.out()) *
                                                       static_cast<int64_t>(sizeof(float));
    bytes.batch = kMostHeadRows * in_float;
  }
  if (poolings_.empty()) {
    const int64_t width = of_tokens_.empty() ? hidden : of_tokens_.out();
    bytes.tokens.sequence += 8 * int64_t{sizeof(int64_t)};  // a document's scores
    bytes.batch = std::max(bytes.batch, kernels::Count(MaxSimBytes(width)));
  }
  return bytes;
}

absl::StatusOr<at::Tensor> PoolingHead::PoolOnce(Pooling pooling, bool spans,
                                                 const HeadInputs& in) const {
  if (!spans) return Pool(pooling, in.rows, in.offsets);
  return PoolSpans(pooling, in.rows, in.spans, in.packing.span_rows, in.control);
}

// Pools all sequences or spans, with one pooling or the model's several, and applies the dense
// layers.
absl::StatusOr<at::Tensor> PoolingHead::PoolAll(Pooling pooling, bool spans,
                                                const HeadInputs& in) const {
  // Admission refuses other poolings, since the dense layers take rows of one width.
  if ((pooling == Pooling::kSeveral) != (poolings_.size() > 1)) {
    return absl::InternalError("a pooling that is not the model's");
  }
  std::vector<at::Tensor> parts;
  for (const Pooling one : pooling == Pooling::kSeveral ? poolings_ : std::vector{pooling}) {
    absl::StatusOr<at::Tensor> part = PoolOnce(one, spans, in);
    if (!part.ok()) return part;
    parts.push_back(*std::move(part));
  }
  absl::StatusOr<at::Tensor> rows =
      dense_(parts.size() == 1 ? parts.front() : at::cat(parts, 1), in.control);
  if (!spans) return rows;
  // An empty span stays zero, whatever the biases are.
  if (rows.ok()) rows->masked_fill_(in.spans.select(0, 1).eq(0).unsqueeze(1), 0);
  return rows;
}

absl::StatusOr<std::vector<at::Tensor>> PoolingHead::ReadOut(const HeadInputs& in) const {
  const Batch& batch = in.batch;
  std::map<Wish, std::vector<size_t>> groups;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    if (batch.items[i].vectors()) groups[WishOf(batch.items[i])].push_back(i);
  }

  // Each pooling is computed once, over all sequences and over all spans.
  std::map<std::pair<bool, Pooling>, at::Tensor> pooled;
  at::Tensor projected;
  std::vector<at::Tensor> outputs(batch.items.size());
  for (const auto& [wish, items] : groups) {
    const bool pools = wish.output == EncodeOutput::kPooled;
    at::Tensor source = in.rows;
    if (pools) {
      at::Tensor& all = pooled[{wish.spans, wish.pooling}];
      if (!all.defined()) {
        absl::StatusOr<at::Tensor> made = PoolAll(wish.pooling, wish.spans, in);
        if (!made.ok()) return made.status();
        all = *std::move(made);
      }
      source = all;
    } else if (!of_tokens_.empty()) {
      if (!projected.defined()) {
        absl::StatusOr<at::Tensor> made = of_tokens_(in.rows, in.control);
        if (!made.ok()) return made.status();
        projected = *std::move(made);
      }
      source = projected;
    }
    const std::vector<int64_t>& firsts = wish.spans ? in.packing.first_span
                                         : pools    ? in.packing.first_sequence
                                                    : in.packing.first_token;

    // The group's rows, concatenated. A group that is the whole batch needs no copy.
    const auto rows_of = [&](const BatchItem& item) {
      return pools ? item.output_rows() : item.tokens();
    };
    at::Tensor wanted = source;
    if (items.size() != batch.items.size()) {
      std::vector<at::Tensor> parts;
      for (const size_t i : items) {
        parts.push_back(source.narrow(0, firsts[i], rows_of(batch.items[i])));
      }
      wanted = at::cat(parts, 0);
    }
    // A model's truncate_dim cuts after normalising, a request's dimensions before.
    if (wish.normalize && wish.cut_last) wanted = Normalized(wanted.to(at::kFloat));
    if (wish.dimensions > 0) wanted = wanted.narrow(1, 0, wish.dimensions);
    wanted = wanted.to(at::kFloat);
    wanted = wish.normalize && !wish.cut_last ? Normalized(wanted) : wanted.contiguous();

    int64_t first = 0;
    for (const size_t i : items) {
      const BatchItem& item = batch.items[i];
      outputs[i] = wanted.narrow(0, first, rows_of(item));
      first += rows_of(item);
      const bool keeps_all = pools || item.kept_seqlens.empty();
      if (!keeps_all) outputs[i] = at::index_select(outputs[i], 0, OnDevice(item.kept, in));
      if (item.output_kind != EncodeOutput::kMaxSim) continue;
      const at::Tensor offsets =
          keeps_all ? in.offsets.narrow(0, in.packing.first_sequence[i], item.sequences() + 1)
                          .sub(in.packing.first_token[i])
                    : OnDevice(item.kept_seqlens, in).to(at::kLong);
      absl::StatusOr<at::Tensor> scores =
          MaxSim(outputs[i], keeps_all ? item.cu_seqlens : item.kept_seqlens, offsets, in.control);
      if (!scores.ok()) return scores.status();
      outputs[i] = *std::move(scores);
    }
  }
  return outputs;
}

namespace {

// Sums of this many rows are float32; sums of these are double.
constexpr int64_t kSumRows = 64;

// out [hidden]: the mean of `count` adjacent rows. sum, total: [hidden], scratch.
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

// A NaN stays.
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

// The first span of each task, and the end. Tasks have about equally many rows.
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

// Copies no rows: only indices, one per row of each span.
at::Tensor ReduceByLibTorch(Pooling pooling, const at::Tensor& rows, const at::Tensor& first,
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
  return ReduceByLibTorch(pooling, rows, first, lengths, span_rows);
}

}  // namespace castor::encoder

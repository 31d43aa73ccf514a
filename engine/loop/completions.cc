#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "engine/attention/finite.h"
#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/encoder/text/output_types.h"
#include "engine/loop/pools.h"
#include "engine/requests/answer_cache.h"

namespace castor {
namespace {

ExecutionReport MakeReport(const Job& job, const Kernel& kernel, const BatchOutcome& outcome) {
  ExecutionReport report;
  report.kernel.kernel = kernel;
  report.kernel.device = outcome.device;
  report.kernel.backend = std::string(outcome.times.backend);
  report.kernel.measured_us = outcome.times.compute_us;
  report.timing.decode_us = Microseconds(job.received, job.queued);
  report.timing.queue_us = Microseconds(job.queued, job.launched);
  report.timing.copy_in_us = outcome.times.copy_in_us;
  report.timing.compute_us = outcome.times.compute_us;
  report.timing.copy_out_us = outcome.times.copy_out_us;
  report.batch.id = outcome.id;
  report.batch.begun = outcome.begun;
  report.batch.ended = outcome.ended;
  report.batch.requests = outcome.requests;
  report.batch.tokens = outcome.tokens;
  report.batch.padded_tokens = outcome.times.padded_tokens;
  report.memory.workspace_bytes = outcome.times.workspace_bytes;
  report.memory.peak_bytes = outcome.peak_bytes;
  job.plan.Describe(&report);
  return report;
}

absl::StatusOr<AttentionResult> TakeResult(const Job& job, AttentionWork& work) {
  AttentionResult result;
  if (work.resolved.spec.log_sum_exp) {
    std::vector<int64_t> shape = work.resolved.output_shape;
    shape.pop_back();
    result.log_sum_exp.emplace(TensorResult{
        .dtype = DType::kFloat32, .shape = std::move(shape), .data = std::move(work.log_sum_exp)});
  }
  result.output.dtype = work.resolved.spec.dtype;
  result.output.shape = std::move(work.resolved.output_shape);
  result.output.data = std::move(work.output);
  result.report = MakeReport(job, work.resolved.spec.kernel, *job.last_run);
  return result;
}

// The non-zero elements of [rows, width].
SparseRows WithoutZeros(std::span<const float> values, int64_t width) {
  SparseRows sparse;
  const auto count = static_cast<size_t>(
      std::count_if(values.begin(), values.end(), [](float value) { return value != 0; }));
  sparse.indices.reserve(count);
  sparse.values.reserve(count);
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(width)) {
    const size_t before = sparse.indices.size();
    for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
      if (values[row + i] == 0) continue;
      sparse.indices.push_back(static_cast<int32_t>(i));
      sparse.values.push_back(values[row + i]);
    }
    sparse.lengths.push_back(static_cast<int64_t>(sparse.indices.size() - before));
  }
  return sparse;
}

// SparseRows hold elements above zero, and quantized rows need a range: neither can express NaN.
// The error concerns one sequence of this request, and no other request of the batch.
absl::Status CheckFinite(const encoder::BatchItem& item, std::span<const float> rows) {
  const auto wrong =
      std::find_if_not(rows.begin(), rows.end(), [](float value) { return std::isfinite(value); });
  if (wrong == rows.end()) return absl::OkStatus();
  const std::string problem = "row " + std::to_string((wrong - rows.begin()) / item.dimensions) +
                              " of " + std::string(encoder::OutputName(item.output_kind)) +
                              " has NaN or Inf, which this kind of answer cannot hold";
  if (item.embeddings == nullptr) return MakeError(Reason::kInternal, problem);
  return InvalidField(Reason::kNonFiniteInput, "embeddings.values", problem);
}

// Converts an output from the device's form to the answer's.
absl::StatusOr<OutputRows> TakeOutput(const EncodeWork& work, OutputWork& output) {
  const encoder::BatchItem& item = output.item;
  const OutputType type = encoder::TypeOf(work.request, item.output_kind);
  const std::span<const float> rows(item.output,
                                    static_cast<size_t>(item.output_rows() * item.dimensions));
  const bool sparse = item.output_kind == EncodeOutput::kSparse;
  if (sparse || encoder::NeedsRanges(type)) {
    if (absl::Status status = CheckFinite(item, rows); !status.ok()) return status;
  }
  OutputRows result;
  result.output = item.output_kind;
  result.lengths = std::move(output.lengths);
  if (sparse) {
    result.sparse = WithoutZeros(rows, item.dimensions);
  } else {
    result.values.dtype = encoder::DTypeOf(type);
    result.values.shape = {item.output_rows(), encoder::TypedWidth(type, item.dimensions)};
    if (encoder::NeedsRanges(type) && work.ranges.empty()) {
      encoder::FindRanges(rows, output.ranges);
    }
    if (type != OutputType::kFloat32) {
      encoder::ConvertRows(type, rows, item.dimensions, output.ranges, output.typed.data());
    }
    result.values.data = std::move(type == OutputType::kFloat32 ? output.values : output.typed);
  }
  output.values = HostBuffer();
  return result;
}

// In place of the run that an answer from the cache did not need.
BatchOutcome FoundRun(const Job& job, const CachedAnswer& found) {
  return {.begun = job.queued,
          .ended = job.queued,
          .times = {.backend = found.backend},
          .requests = 0,
          .device = found.device};
}

absl::StatusOr<EncodeResult> TakeResult(const Job& job, EncodeWork& work) {
  EncodeResult result;
  result.model = work.model->info.name;
  if (work.prompt != nullptr) result.prompt_name = work.prompt->name;
  if (work.request.return_texts) {
    auto& input = std::get<TextInput>(work.request.input);
    result.texts = std::move(input.pairs.empty() ? input.texts : input.pairs);
    result.text = std::move(work.text);
  }
  if (!work.request.runs()) {
    result.tokenized = std::move(work.tokenized);
    result.report.timing.decode_us = work.tokenize_us;
    return result;
  }
  const CacheUse& cache = work.cache;
  if (cache.found != nullptr) result.outputs = SharedRows(cache.found);
  bool keep = !cache.key.empty();
  for (OutputWork& output : work.outputs) {
    keep = keep && !attention::FindNonFinite(DType::kFloat32, output.values.bytes());
    absl::StatusOr<OutputRows> rows = TakeOutput(work, output);
    if (!rows.ok()) return rows.status();
    result.outputs.push_back(*std::move(rows));
  }
  const BatchOutcome run = cache.found == nullptr ? *job.last_run : FoundRun(job, *cache.found);
  // Without memory for a copy, the answer is still good.
  if (keep) {
    (void)Guarded([&] { cache.cache->Keep(work, result.outputs, run.device, run.times.backend); });
  }
  for (const OutputRows& rows : result.outputs) {
    const bool labelled =
        rows.output == EncodeOutput::kLogits || rows.output == EncodeOutput::kScores;
    if (labelled) result.labels = work.model->info.labels;
  }
  if (work.request.outputs.empty()) {
    OutputRows& only = result.outputs.front();
    result.output = std::move(only.values);
    result.sparse = std::move(only.sparse);
    result.lengths = std::move(only.lengths);
    result.outputs.clear();
  }
  result.token_counts = std::move(work.token_counts);
  result.truncated = std::move(work.prepared.truncated);
  result.spans = std::move(work.prepared.spans);
  result.report = MakeReport(job, work.kernel, run);
  result.report.batch.cached = work.cache.found != nullptr;
  return result;
}

int64_t SizeOfAnswer(const AttentionResult& result) {
  const size_t log_sum_exp = result.log_sum_exp ? result.log_sum_exp->data.size() : 0;
  return static_cast<int64_t>(result.output.data.size() + log_sum_exp);
}

int64_t SizeOfRows(const TensorResult& rows, const std::optional<SparseRows>& sparse) {
  return sparse.has_value() ? sparse->size_bytes() : static_cast<int64_t>(rows.data.size());
}

int64_t SizeOfAnswer(const EncodeResult& result) {
  auto bytes = static_cast<int64_t>(result.text.size());
  if (result.tokenized.has_value()) return bytes + result.tokenized->size_bytes();
  bytes += SizeOfRows(result.output, result.sparse);
  for (const OutputRows& rows : result.outputs) bytes += SizeOfRows(rows.values, rows.sparse);
  return bytes;
}

template <typename Work, typename Done>
void DeliverAs(Answer answer) {
  Done done = std::move(std::get<Done>(answer.done));
  if (!answer.status.ok()) {
    answer.job.reset();
    std::move(done)(std::move(answer.status));
    return;
  }
  std::shared_ptr<Reservation> share;
  auto result = Guarded([&] {
    share = std::make_shared<Reservation>();
    return TakeResult(*answer.job, std::get<Work>(answer.job->work));
  });
  // All but the answer leaves the budgets before `done` is called, since `done` may submit again.
  if (result.ok()) *share = std::move(answer.job->reservation);
  answer.job.reset();
  if (!result.ok()) return std::move(done)(result.status());
  // At least one byte, since a reservation that holds none cannot grow to the encoded answer's
  // size.
  share->ResizeTo(std::max<int64_t>(1, SizeOfAnswer(*result)));
  result->share = std::move(share);
  std::move(done)(std::move(result));
}

}  // namespace

void Deliver(Answer answer) noexcept {
  if (std::holds_alternative<AttentionCompletion>(answer.done)) {
    DeliverAs<AttentionWork, AttentionCompletion>(std::move(answer));
  } else {
    DeliverAs<EncodeWork, EncodeCompletion>(std::move(answer));
  }
}

Completions::Completions(int threads, Ledger& ledger, Counters& counters)
    : ledger_(ledger),
      counters_(counters),
      threads_(
          threads, [this] { Run(); }, [this] { ledger_.Stop(); }) {}

void Completions::Run() noexcept {
  Ledger::WorkSize size = Ledger::WorkSize::kNothing;
  while (true) {
    Answer answer;
    if (!ledger_.NextAnswer(/*wait=*/true, &size, &answer)) return;
    // Counted before delivery, so that a caller that has its answer also sees it counted.
    if (!answer.status.ok()) counters_.Refused(answer.status);
    Deliver(std::move(answer));
  }
}

}  // namespace castor

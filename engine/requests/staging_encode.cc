#include <algorithm>
#include <utility>
#include <vector>

#include "engine/attention/finite.h"
#include "engine/attention/problem.h"
#include "engine/base/error.h"
#include "engine/encoder/text/output_types.h"
#include "engine/encoder/text/prompts.h"
#include "engine/requests/staging.h"

namespace castor {
namespace {

// Host memory for a token: its id and its type id.
constexpr int64_t kBytesPerToken = 2 * sizeof(int64_t);

// Host memory for a range of spans: as requested, as sorted, and as pooled.
constexpr int64_t kBytesPerSpan = sizeof(Spans::Range) + sizeof(uint32_t) + sizeof(PooledSpan) +
                                  sizeof(encoder::RowRange) + 2 * sizeof(int64_t);

int64_t TextBytes(const TextInput& input) {
  size_t bytes = 0;
  for (std::string_view text : input.texts) bytes += text.size();
  for (std::string_view pair : input.pairs) bytes += pair.size();
  return static_cast<int64_t>(bytes);
}

int64_t Sequences(const EncodeRequest& request) {
  if (const auto* texts = std::get_if<TextInput>(&request.input)) {
    return static_cast<int64_t>(texts->texts.size());
  }
  const auto& lengths = std::holds_alternative<TokenInput>(request.input)
                            ? std::get<TokenInput>(request.input).lengths
                            : std::get<EmbeddingInput>(request.input).lengths;
  return std::max<int64_t>(1, static_cast<int64_t>(lengths.size()));
}

// The bytes that the answer's SparseRows may take in addition to the full rows, which they replace.
int64_t SparseBytes(EncodeOutput output, int64_t row_bytes) {
  constexpr int64_t kIndexAndValue = 2;  // of a float's size each
  return output == EncodeOutput::kSparse ? kIndexAndValue * row_bytes : 0;
}

// Copies the rows of the caller's embeddings that `prepared` keeps.
absl::Status StageEmbeddings(const EmbeddingInput& input, bool check_finite, int64_t hidden,
                             HostPool& pool, EncodeWork* work) {
  const DType dtype = input.values.dtype;
  const size_t bytes = static_cast<size_t>(work->prepared.tokens() * hidden) * SizeOf(dtype);
  auto staged = pool.Allocate(bytes);
  if (!staged.ok()) return staged.status();
  work->input = *std::move(staged);
  absl::Status copied = encoder::CopyEmbeddings(input, work->prepared, work->input.data());
  if (!copied.ok()) return copied;
  if (!check_finite) return absl::OkStatus();
  return attention::CheckFinite(dtype, work->input.bytes(), "embeddings.values");
}

// Sets the numbers of tokens that the answer reports for each sequence.
void CountTokens(EncodeWork* work) {
  const std::vector<int32_t>& offsets = work->prepared.cu_seqlens;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    work->token_counts.push_back(offsets[i + 1] - offsets[i]);
  }
}

// The number of rows of this output for each sequence.
std::vector<int64_t> RowsPerSequence(const EncodeWork& work, EncodeOutput output) {
  const std::vector<int32_t>& kept = work.prepared.kept_seqlens;
  if (output == EncodeOutput::kTokenEmbeddings && !kept.empty()) {
    std::vector<int64_t> lengths;
    for (size_t i = 1; i < kept.size(); ++i) lengths.push_back(kept[i] - kept[i - 1]);
    return lengths;
  }
  if (encoder::PerToken(work.model->info, output)) return work.token_counts;
  const std::vector<Spans::Range>& ranges = work.request.spans.ranges;
  const bool in_spans = output == EncodeOutput::kPooled && !ranges.empty();
  std::vector<int64_t> lengths(work.token_counts.size(), in_spans ? 0 : 1);
  if (output == EncodeOutput::kMaxSim) lengths.front() = 0;  // the query
  if (!in_spans) return lengths;
  for (const Spans::Range& range : ranges) ++lengths[static_cast<size_t>(range.sequence)];
  return lengths;
}

// The rows to pool: the request's spans; or each sequence without its prompt; or all rows, for
// which the list is empty.
std::vector<encoder::RowRange> PooledRows(const EncodeWork& work) {
  const std::vector<int32_t>& offsets = work.prepared.cu_seqlens;
  std::vector<encoder::RowRange> rows;
  for (size_t i = 0; i < work.prepared.spans.size(); ++i) {
    const PooledSpan& span = work.prepared.spans[i];
    const int32_t first = offsets[static_cast<size_t>(work.request.spans.ranges[i].sequence)];
    // Empty ranges have no position.
    rows.push_back(span.begin == span.end
                       ? encoder::RowRange{}
                       : encoder::RowRange{first + span.begin, first + span.end});
  }
  const bool pools = encoder::Pools(encoder::OutputsOf(work.request, work.model->info));
  if (!rows.empty() || !pools || work.prepared.left_out == 0) return rows;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const int32_t first = std::min(offsets[i + 1], offsets[i] + work.prepared.left_out);
    rows.push_back(first == offsets[i + 1] ? encoder::RowRange{}
                                           : encoder::RowRange{first, offsets[i + 1]});
  }
  return rows;
}

// Describes one of the request's outputs, and allocates its memory.
absl::Status StageOutput(EncodeOutput kind, HostPool& pool, EncodeWork* work) {
  const EncodeRequest& request = work->request;
  const ModelInfo& info = work->model->info;
  OutputWork& output = work->outputs.emplace_back();
  encoder::BatchItem& item = output.item;
  item.repeats = work->outputs.size() > 1;
  item.cu_seqlens = work->prepared.cu_seqlens;
  item.ids = work->prepared.ids;
  item.type_ids = work->prepared.type_ids;
  const auto task = std::ranges::find(info.tasks, request.task);
  if (task != info.tasks.end()) item.task = static_cast<int32_t>(task - info.tasks.begin());
  item.hidden = work->prepared.hidden;
  item.kept = work->prepared.kept;
  item.kept_seqlens = work->prepared.kept_seqlens;
  if (const auto* embeddings = std::get_if<EmbeddingInput>(&request.input)) {
    item.embeddings = work->input.data();
    item.embeddings_dtype = embeddings->values.dtype;
  }
  item.output_kind = kind;
  item.token_labels = info.token_labels;
  item.pooling = request.pooling.value_or(info.pooling);
  item.normalize = request.normalize.value_or(info.normalize);
  item.dimensions = encoder::DimensionsOf(request, info, kind);
  item.cut_last = request.dimensions == 0;
  item.spans = work->pooled;
  output.lengths = RowsPerSequence(*work, kind);

  const int64_t rows = item.output_rows();
  const OutputType type = encoder::TypeOf(request, kind);
  if (rows < 2 && encoder::NeedsRanges(type) && work->ranges.empty()) {
    return InvalidField("ranges", "required: a single row has no range of its own");
  }
  if (encoder::NeedsRanges(type)) {
    output.ranges = work->ranges;
    output.ranges.resize(static_cast<size_t>(2 * item.dimensions));
  }
  auto values = pool.Allocate(static_cast<size_t>(rows * item.dimensions) * sizeof(float));
  if (!values.ok()) return values.status();
  output.values = *std::move(values);
  item.output = output.values.as<float>();
  auto typed =
      pool.Allocate(static_cast<size_t>(rows * encoder::TypedRowBytes(type, item.dimensions)));
  if (!typed.ok()) return typed.status();
  output.typed = *std::move(typed);
  return absl::OkStatus();
}

}  // namespace

Cost EstimateEncodeCost(const EncodeWork& work) {
  const EncodeRequest& request = work.request;
  const ModelInfo& info = work.model->info;
  if (!request.runs()) {  // it does not use the device
    const auto* texts = std::get_if<TextInput>(&request.input);
    return {.bytes = (texts == nullptr ? 0 : TextBytes(*texts)) +
                     work.model->encoder->EstimateTokenizedBytes(request)};
  }
  const int64_t tokens = work.model->encoder->EstimateTokens(request);
  attention::Count bytes = attention::Count(tokens) * kBytesPerToken;
  if (const auto* texts = std::get_if<TextInput>(&request.input)) {
    bytes +=
        TextBytes(*texts) + (request.prompt ? static_cast<int64_t>(request.prompt->size()) : 0);
  } else if (const auto* embeddings = std::get_if<EmbeddingInput>(&request.input)) {
    bytes += embeddings->values.size_bytes();
  }
  const auto spans = static_cast<int64_t>(request.spans.ranges.size());
  for (const EncodeOutput output : encoder::OutputsOf(request, info)) {
    const bool in_spans = spans > 0 && output == EncodeOutput::kPooled;
    const attention::Count rows = in_spans                          ? spans
                                  : encoder::PerToken(info, output) ? tokens
                                                                    : Sequences(request);
    const int64_t dimensions = encoder::DimensionsOf(request, info, output);
    const int64_t row_bytes = dimensions * static_cast<int64_t>(sizeof(float));
    bytes += rows * (attention::Count(row_bytes) + SparseBytes(output, row_bytes) +
                     encoder::TypedRowBytes(encoder::TypeOf(request, output), dimensions));
  }
  bytes += attention::Count(spans) * kBytesPerSpan;
  return {.tokens = tokens, .bytes = bytes.value()};
}

EncodeWork OpenEncode(EncodeRequest request, ModelUse model, Kernel kernel) {
  EncodeWork work;
  work.request = std::move(request);
  work.prompt = encoder::PromptOf(work.request, model->info.prompts);
  work.model = std::move(model);
  work.kernel = std::move(kernel);
  return work;
}

void CopyTexts(EncodeWork* work) {
  if (!std::holds_alternative<TextInput>(work->request.input)) return;  // ids are already copied
  auto& input = std::get<TextInput>(work->request.input);
  std::string& owned = work->text;
  size_t bytes = 0;
  for (const auto* const texts : {&input.texts, &input.pairs}) {
    for (size_t i = 0; i < texts->size(); ++i) {
      if (!TextInput::Repeats(*texts, i)) bytes += (*texts)[i].size();
    }
  }
  // Longer than a string's inline buffer, so that the bytes stay in place when the string is moved.
  owned.reserve(sizeof(owned) + bytes);
  std::string_view last, copy;  // the last text, and its copy
  for (auto* const texts : {&input.texts, &input.pairs}) {
    for (std::string_view& text : *texts) {
      if (text.data() != last.data() || text.size() != last.size()) {
        const size_t at = owned.size();
        last = text;
        copy = std::string_view(owned.append(text)).substr(at);
      }
      text = copy;
    }
  }
}

absl::StatusOr<bool> PrepareEncode(const encoder::Slice& slice, EncodeWork* work) {
  if (!work->request.runs()) {
    return work->model->encoder->TokenizeSome(work->request, slice, &work->tokenized);
  }
  auto prepared = work->model->encoder->PrepareSome(work->request, slice, &work->prepared);
  if (prepared.ok() && *prepared) CountTokens(work);
  return prepared;
}

absl::StatusOr<Cost> StageEncode(HostPool& pool, EncodeWork* work) {
  const EncodeRequest& request = work->request;
  const ModelInfo& info = work->model->info;
  work->pooled = PooledRows(*work);
  if (const auto* embeddings = std::get_if<EmbeddingInput>(&request.input)) {
    auto status = StageEmbeddings(*embeddings, request.check_finite, info.hidden_size, pool, work);
    if (!status.ok()) return status;
  }
  for (const EncodeOutput output : encoder::OutputsOf(request, info)) {
    absl::Status status = StageOutput(output, pool, work);
    if (!status.ok()) return status;
  }

  const int64_t tokens = work->prepared.tokens();
  Cost cost{.tokens = tokens,
            .bytes = tokens * kBytesPerToken +
                     static_cast<int64_t>(request.spans.ranges.size()) * kBytesPerSpan +
                     static_cast<int64_t>(work->input.size() + work->cache.key.size()) +
                     work->output_bytes()};
  for (const OutputWork& output : work->outputs) {
    cost.bytes += SparseBytes(output.item.output_kind, static_cast<int64_t>(output.values.size()));
  }
  if (request.return_texts) {
    cost.bytes += static_cast<int64_t>(work->text.size());
    return cost;
  }
  // The input is no longer needed, and must not be read again once Submit has returned.
  work->request.input = TextInput{};
  work->text = std::string();
  return cost;
}

}  // namespace castor

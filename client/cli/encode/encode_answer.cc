#include "client/cli/encode/encode_answer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "client/tensor.h"

namespace castor::cli {
namespace {

constexpr size_t kMostTexts = 20;   // in a table
constexpr size_t kMostLabels = 5;   // of a sequence, in a table
constexpr size_t kMostIndices = 8;  // likewise
constexpr size_t kTextCells = 48;
constexpr size_t kMostCut = 10;                    // that are named
constexpr int64_t kMostTokens = int64_t{1} << 40;  // of a sequence

double Cosine(const float* a, const float* b, int64_t width) {
  double product = 0, norm_a = 0, norm_b = 0;
  for (int64_t i = 0; i < width; ++i) {
    product += static_cast<double>(a[i]) * b[i];
    norm_a += static_cast<double>(a[i]) * a[i];
    norm_b += static_cast<double>(b[i]) * b[i];
  }
  const double norm = std::sqrt(norm_a * norm_b);
  return norm > 0 ? product / norm : 0;
}

// The places of the greatest values, at most `most`, greatest first; NaN is less than every number.
std::vector<size_t> Greatest(const float* values, size_t count, size_t most) {
  std::vector<size_t> places(count);
  std::iota(places.begin(), places.end(), size_t{0});
  const size_t kept = std::min(most, count);
  const auto value = [&](size_t place) {
    return std::isnan(values[place]) ? -std::numeric_limits<float>::infinity() : values[place];
  };
  std::partial_sort(
      places.begin(), places.begin() + static_cast<std::ptrdiff_t>(kept), places.end(),
      [&](size_t a, size_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  places.resize(kept);
  return places;
}

// The answer's `field` contradicts the request or the rest of the answer.
absl::Status Mismatch(const std::string& field, const std::string& problem) {
  return absl::DataLossError("the answer does not fit the request: " + field + " " + problem);
}

absl::Status CountMismatch(const std::string& field, int64_t count, int64_t expected) {
  return Mismatch(field,
                  "has " + std::to_string(count) + " entries, not " + std::to_string(expected));
}

// Checks the fields that have an entry for each sequence or range.
absl::Status CheckCounts(const v1::EncodeResponse& response, size_t sequences, size_t spans) {
  const auto count = static_cast<int>(sequences);
  const auto ranges = static_cast<int>(spans);
  if (response.token_counts_size() != count) {
    return CountMismatch("token_counts", response.token_counts_size(), count);
  }
  if (response.truncated_size() != count) {
    return CountMismatch("truncated", response.truncated_size(), count);
  }
  if (response.spans_size() != ranges) return CountMismatch("spans", response.spans_size(), ranges);
  for (const int64_t tokens : response.token_counts()) {
    if (tokens < 0 || tokens > kMostTokens) {
      return Mismatch("token_counts", "holds " + std::to_string(tokens));
    }
  }
  for (const v1::PooledSpan& span : response.spans()) {
    if (span.begin() < 0 || span.end() < span.begin() || span.end() > kMostTokens) {
      return Mismatch("spans", "holds the tokens " + std::to_string(span.begin()) + " to " +
                                   std::to_string(span.end()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EncodeAnswer::AppendLengths(const google::protobuf::RepeatedField<int64_t>& lengths,
                                         int64_t rows, size_t sequences, const std::string& field) {
  if (lengths.size() != static_cast<int>(sequences)) {
    return CountMismatch(field, lengths.size(), static_cast<int64_t>(sequences));
  }
  int64_t left = rows;
  for (const int64_t length : lengths) {
    if (length < 0 || length > left) {
      return Mismatch(field, "holds " + std::to_string(length) + ", and " + std::to_string(left) +
                                 " of " + std::to_string(rows) + " are left");
    }
    left -= length;
    firsts_.push_back(firsts_.back() + length);
  }
  if (left == 0) return absl::OkStatus();
  return Mismatch(field, "leaves out " + std::to_string(left) + " of " + std::to_string(rows));
}

absl::Status EncodeAnswer::AppendSparse(const v1::SparseRows& rows, size_t sequences) {
  if (rows.indices_size() != rows.values_size()) {
    return CountMismatch("sparse.indices", rows.indices_size(), rows.values_size());
  }
  indices_.insert(indices_.end(), rows.indices().begin(), rows.indices().end());
  values_.insert(values_.end(), rows.values().begin(), rows.values().end());
  return AppendLengths(rows.lengths(), rows.values_size(), sequences, "sparse.lengths");
}

absl::Status EncodeAnswer::AppendRows(const v1::EncodeResponse& response, size_t sequences,
                                      size_t spans) {
  const v1::Tensor& output = response.output();
  const auto values = client::ToFloats(output);
  if (!values) {
    return Mismatch("output", "is not a complete tensor: " + client::ShapeString(output) + " " +
                                  v1::DataType_Name(output.dtype()) + " in " +
                                  std::to_string(output.raw().size()) + " bytes");
  }
  if (output.shape_size() != 2 || output.shape(1) < 1) {
    return Mismatch("output.shape", "is " + client::ShapeString(output) + ", not [rows, width]");
  }
  if (requests_ > 0 && output.shape(1) != width_) {
    return Mismatch("output.shape", "is " + client::ShapeString(output) + ", and a width of " +
                                        std::to_string(width_) + " came before");
  }
  width_ = output.shape(1);
  if (response.labels_size() > 0 && response.labels_size() != width_) {
    return CountMismatch("labels", response.labels_size(), width_);
  }
  if (spans > 0 && response.labels_size() > 0) return Mismatch("labels", "must be empty for spans");
  if (spans > 0 && output.shape(0) != static_cast<int64_t>(spans)) {
    return Mismatch("output.shape", "is " + client::ShapeString(output) + " for " +
                                        std::to_string(spans) + " spans");
  }
  values_.insert(values_.end(), values->begin(), values->end());
  for (const int64_t length : response.lengths()) {
    per_token_ = per_token_ || (spans == 0 && length != 1);
  }
  return AppendLengths(response.lengths(), output.shape(0), sequences, "lengths");
}

absl::Status EncodeAnswer::Append(v1::EncodeResponse response,
                                  const std::vector<std::string>& inputs,
                                  const std::vector<std::string>& spans) {
  if (absl::Status s = CheckCounts(response, inputs.size(), spans.size()); !s.ok()) return s;
  const bool sparse = response.has_sparse();
  if (requests_ > 0 && sparse != sparse_) {
    return Mismatch("sparse", "is in only some of the answers");
  }
  if (requests_ > 0 && !std::equal(response.labels().begin(), response.labels().end(),
                                   last_.labels().begin(), last_.labels().end())) {
    return Mismatch("labels", "differ from answer to answer");
  }
  sparse_ = sparse;
  if (sparse && !spans.empty()) return Mismatch("sparse", "has no rows for spans");
  const absl::Status rows = sparse ? AppendSparse(response.sparse(), inputs.size())
                                   : AppendRows(response, inputs.size(), spans.size());
  if (!rows.ok()) return rows;
  for (const bool cut : response.truncated()) truncated_inputs_.Add(cut);
  for (const v1::PooledSpan& span : response.spans()) truncated_spans_.Add(span.truncated());
  token_counts_.insert(token_counts_.end(), response.token_counts().begin(),
                       response.token_counts().end());
  truncated_.insert(truncated_.end(), response.truncated().begin(), response.truncated().end());
  inputs_.insert(inputs_.end(), inputs.begin(), inputs.end());
  spans_.insert(spans_.end(), response.spans().begin(), response.spans().end());
  span_names_.insert(span_names_.end(), spans.begin(), spans.end());
  response.clear_output();
  response.clear_sparse();
  response.clear_spans();
  last_ = std::move(response);
  ++requests_;
  return absl::OkStatus();
}

EncodeAnswer::Counts EncodeAnswer::Count() const {
  Counts all = discarded_;
  all.inputs += inputs_.size();
  all.spans += spans_.size();
  all.values += values_.size();
  all.rows += kept_rows();
  for (const int64_t count : token_counts_) all.tokens += count;
  return all;
}

void EncodeAnswer::DiscardRows() {
  discarded_ = Count();
  values_.clear();
  indices_.clear();
  firsts_ = {0};
  token_counts_.clear();
  truncated_.clear();
  inputs_.clear();
  spans_.clear();
  span_names_.clear();
}

bool EncodeAnswer::ShowsRows() const {
  const Counts all = Count();
  return std::max(all.inputs, all.spans) <= kMostTexts && (!per_token_ || last_.labels_size() > 0);
}

std::string EncodeAnswer::TruncationText() const {
  if (truncated_inputs_.truncated == 0 && truncated_spans_.truncated == 0) return "";
  return truncated_inputs_.Text("inputs") +
         (truncated_spans_.all > 0 ? " and " + truncated_spans_.Text("spans") : "");
}

std::string EncodeAnswer::Shape() const {
  const Counts all = Count();
  if (sparse_) {
    return std::to_string(all.inputs) + " sparse rows, " + std::to_string(all.values) + " values";
  }
  return "[" + std::to_string(all.rows) + ", " + std::to_string(width_) + "] FLOAT32, " +
         (per_token_       ? "one row per token"
          : all.spans == 0 ? "one row per sequence"
                           : "one row per span");
}

// Every row, and its cosine similarity to every other one.
std::string EncodeAnswer::CosineTable() const {
  std::vector<std::vector<std::string>> cells = {{"", "TOKENS"}};
  const bool spans = !spans_.empty();
  const size_t count = spans ? spans_.size() : inputs_.size();
  for (size_t i = 0; i < count; ++i) cells[0].push_back("[" + std::to_string(i) + "]");
  cells[0].push_back("COSINE WITH");
  for (size_t i = 0; i < count; ++i) {
    const int64_t tokens = spans ? spans_[i].end() - spans_[i].begin() : token_counts_[i];
    const bool cut = spans ? spans_[i].truncated() : truncated_[i];
    std::vector<std::string> row = {"[" + std::to_string(i) + "]", TokensText(tokens, cut)};
    for (size_t j = 0; j < count; ++j) {
      const float* const all = values_.data();
      row.push_back(FormatReal(Cosine(all + static_cast<int64_t>(i) * width_,
                                      all + static_cast<int64_t>(j) * width_, width_),
                               "%.3f"));
    }
    row.push_back(FitText(spans ? span_names_[i] : inputs_[i], kTextCells));
    cells.push_back(std::move(row));
  }
  return FormatTable(cells);
}

template <typename Cell>
std::string EncodeAnswer::SequenceTable(const std::string& title, const Cell& cell) const {
  std::vector<std::vector<std::string>> cells = {{"", "TOKENS", title, "INPUT"}};
  for (size_t i = 0; i < inputs_.size(); ++i) {
    cells.push_back({"[" + std::to_string(i) + "]", TokensText(token_counts_[i], truncated_[i]),
                     cell(i), FitText(inputs_[i], kTextCells)});
  }
  return FormatTable(cells);
}

// "calm 0.697, stormy 0.248": the greatest first.
std::string EncodeAnswer::LabelsOfSequence(size_t sequence) const {
  const float* const row = values_.data() + firsts_[sequence] * width_;
  std::string text;
  for (const size_t label : Greatest(row, static_cast<size_t>(width_), kMostLabels)) {
    text += (text.empty() ? "" : ", ") + FitText(last_.labels(static_cast<int>(label)), 32) + " " +
            FormatReal(row[label], "%.3f");
  }
  return text;
}

// "O x3, B-LOC, O x2": the label with the greatest value, for each token.
std::string EncodeAnswer::LabelsOfTokens(size_t sequence) const {
  std::string text;
  for (int64_t token = firsts_[sequence]; token < firsts_[sequence + 1];) {
    const auto label = [&](int64_t t) {
      return Greatest(values_.data() + t * width_, static_cast<size_t>(width_), 1).front();
    };
    const size_t same = label(token);
    int64_t end = token + 1;
    while (end < firsts_[sequence + 1] && label(end) == same) ++end;
    text += (text.empty() ? "" : ", ") + last_.labels(static_cast<int>(same));
    if (end - token > 1) text += " x" + std::to_string(end - token);
    token = end;
  }
  return FitText(text, 80);
}

std::string EncodeAnswer::LabelTable() const {
  if (per_token_) {
    return SequenceTable("LABELS OF TOKENS", [this](size_t i) { return LabelsOfTokens(i); });
  }
  return SequenceTable("LABELS", [this](size_t i) { return LabelsOfSequence(i); });
}

// "812: 2023 1.52, 101 0.98": the greatest first.
std::string EncodeAnswer::SparseTable() const {
  return SequenceTable("TOKEN IDS", [this](size_t i) {
    const int64_t first = firsts_[i];
    const auto count = static_cast<size_t>(firsts_[i + 1] - first);
    std::string text = std::to_string(count) + (count > 0 ? ": " : "");
    bool begun = false;
    for (const size_t place : Greatest(values_.data() + first, count, kMostIndices)) {
      const auto at = static_cast<size_t>(first) + place;
      text += (begun ? ", " : "") + std::to_string(indices_[at]) + " " +
              FormatReal(values_[at], "%.3f");
      begun = true;
    }
    return text + (count > kMostIndices ? ", ..." : "");
  });
}

std::string EncodeAnswer::Table(double round_trip_us) const {
  Rows rows = {
      {"model", last_.model()}, {"output", Shape()}, {"tokens", std::to_string(Count().tokens)}};
  if (requests_ > 1) {
    rows.emplace_back("requests", std::to_string(requests_) + ", the last one below");
  }
  if (!last_.prompt_name().empty()) rows.emplace_back("prompt", last_.prompt_name());
  AppendReports(last_.kernel(), last_.timing(), last_.batch(), last_.memory(), round_trip_us,
                &rows);
  const std::string text = FormatRows(rows) + "\n";
  if (!ShowsRows()) {
    return text + "The values are in --output json" + (sparse_ ? "" : " and --output npy") + ".\n";
  }
  if (sparse_) return text + SparseTable();
  return text + (last_.labels_size() > 0 ? LabelTable() : CosineTable());
}

Json EncodeAnswer::SpansJson(size_t sequence) const {
  Json spans = Json::array();
  for (auto i = static_cast<size_t>(firsts_[sequence]);
       i < static_cast<size_t>(firsts_[sequence + 1]); ++i) {
    spans.push_back({{"input", span_names_[i]},
                     {"begin", spans_[i].begin()},
                     {"end", spans_[i].end()},
                     {"truncated", spans_[i].truncated()}});
  }
  return spans;
}

Json EncodeAnswer::Reports(double round_trip_us) const {
  Json json = cli::ToJson(last_);
  for (const char* repeated : {"lengths", "token_counts", "truncated", "request_id"}) {
    json.erase(repeated);
  }
  json["round_trip_us"] = round_trip_us;
  if (!sparse_) json["shape"] = {rows(), width_};
  return json;
}

Json EncodeAnswer::Sequences() const {
  Json sequences = Json::array();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const bool truncated = truncated_[i];
    Json sequence = {{"input", inputs_[i]}, {"tokens", token_counts_[i]}, {"truncated", truncated}};
    const int64_t first = firsts_[i], end = firsts_[i + 1];
    if (sparse_) {
      sequence["indices"] = std::vector<int32_t>(indices_.begin() + first, indices_.begin() + end);
      sequence["values"] = std::vector<float>(values_.begin() + first, values_.begin() + end);
    } else {
      Json rows = Json::array();
      for (int64_t r = first; r < end; ++r) {
        rows.push_back(
            std::vector<float>(values_.begin() + r * width_, values_.begin() + (r + 1) * width_));
      }
      sequence["rows"] = std::move(rows);
      if (!spans_.empty()) sequence["spans"] = SpansJson(i);
    }
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

}  // namespace castor::cli

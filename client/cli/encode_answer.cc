#include "client/cli/encode_answer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "client/tensor.h"

namespace castor::cli {
namespace {

constexpr size_t kMostTexts = 20;   // in a table
constexpr size_t kMostLabels = 5;   // of a sequence, in a table
constexpr size_t kMostIndices = 8;  // likewise
constexpr size_t kTextCells = 48;

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

// The places of the greatest, at most `most`, greatest first.
std::vector<size_t> Greatest(const float* values, size_t count, size_t most) {
  std::vector<size_t> places(count);
  std::iota(places.begin(), places.end(), size_t{0});
  const size_t kept = std::min(most, count);
  std::partial_sort(
      places.begin(), places.begin() + static_cast<std::ptrdiff_t>(kept), places.end(),
      [&](size_t a, size_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
  places.resize(kept);
  return places;
}

}  // namespace

bool EncodeAnswer::AppendSparse(const v1::SparseRows& rows) {
  if (rows.indices_size() != rows.values_size()) return false;
  int64_t left = rows.indices_size();
  for (const int64_t length : rows.lengths()) {
    if (length < 0 || length > left) return false;
    left -= length;
    firsts_.push_back(firsts_.back() + length);
  }
  indices_.insert(indices_.end(), rows.indices().begin(), rows.indices().end());
  values_.insert(values_.end(), rows.values().begin(), rows.values().end());
  return left == 0;
}

bool EncodeAnswer::Append(v1::EncodeResponse response, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& spans) {
  const auto sequences = static_cast<int>(inputs.size());
  const bool sparse = response.has_sparse();
  if (response.token_counts_size() != sequences || response.truncated_size() != sequences ||
      response.spans_size() != static_cast<int>(spans.size()) ||
      (requests_ > 0 && sparse != sparse_)) {
    return false;
  }
  sparse_ = sparse;
  if (sparse) {
    if (response.sparse().lengths_size() != sequences || !AppendSparse(response.sparse())) {
      return false;
    }
  } else {
    const auto values = client::ToFloats(response.output());
    if (!values || response.output().shape_size() != 2 || response.lengths_size() != sequences ||
        (requests_ > 0 && response.output().shape(1) != width_)) {
      return false;
    }
    width_ = response.output().shape(1);
    int64_t left = response.output().shape(0);
    for (const int64_t length : response.lengths()) {
      if (length < 0 || length > left) return false;
      left -= length;
      firsts_.push_back(firsts_.back() + length);
    }
    if (left != 0 || (response.labels_size() > 0 && response.labels_size() != width_)) return false;
    values_.insert(values_.end(), values->begin(), values->end());
  }
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
  return true;
}

bool EncodeAnswer::per_token() const {
  return !sparse_ && spans_.empty() && firsts_.back() != static_cast<int64_t>(inputs_.size());
}

std::string EncodeAnswer::Shape() const {
  if (sparse_) {
    return std::to_string(inputs_.size()) + " sparse rows, " + std::to_string(values_.size()) +
           " values";
  }
  return "[" + std::to_string(rows()) + ", " + std::to_string(width_) + "] FLOAT32, " +
         (per_token()      ? "one row per token"
          : spans_.empty() ? "one row per sequence"
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
    std::vector<std::string> row = {"[" + std::to_string(i) + "]",
                                    std::to_string(tokens) + (cut ? " (cut)" : "")};
    for (size_t j = 0; j < count; ++j) {
      const float* const all = values_.data();
      row.push_back(FormatReal(Cosine(all + static_cast<int64_t>(i) * width_,
                                      all + static_cast<int64_t>(j) * width_, width_),
                               "%.3f"));
    }
    row.push_back(Shorten(spans ? span_names_[i] : inputs_[i], kTextCells));
    cells.push_back(std::move(row));
  }
  return FormatTable(cells);
}

template <typename Cell>
std::string EncodeAnswer::SequenceTable(const std::string& title, const Cell& cell) const {
  std::vector<std::vector<std::string>> cells = {{"", "TOKENS", title, "INPUT"}};
  for (size_t i = 0; i < inputs_.size(); ++i) {
    cells.push_back({"[" + std::to_string(i) + "]",
                     std::to_string(token_counts_[i]) + (truncated_[i] ? " (cut)" : ""), cell(i),
                     Shorten(inputs_[i], kTextCells)});
  }
  return FormatTable(cells);
}

// "calm 0.697, stormy 0.248": the greatest first.
std::string EncodeAnswer::LabelsOfSequence(size_t sequence) const {
  const float* const row = values_.data() + firsts_[sequence] * width_;
  std::string text;
  for (const size_t label : Greatest(row, static_cast<size_t>(width_), kMostLabels)) {
    text += (text.empty() ? "" : ", ") + Shorten(last_.labels(static_cast<int>(label)), 32) + " " +
            FormatReal(row[label], "%.3f");
  }
  return text;
}

// "O x3, B-LOC, O x2": of each token the label with the greatest value.
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
  return Shorten(text, 80);
}

std::string EncodeAnswer::LabelTable() const {
  if (per_token()) {
    return SequenceTable("LABELS OF TOKENS", [this](size_t i) { return LabelsOfTokens(i); });
  }
  return SequenceTable("LABELS", [this](size_t i) { return LabelsOfSequence(i); });
}

// "812 of them: 2023 1.52, 101 0.98": the greatest first.
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
  int64_t tokens = 0;
  for (const int64_t count : token_counts_) tokens += count;
  Rows rows = {{"model", last_.model()}, {"output", Shape()}, {"tokens", std::to_string(tokens)}};
  if (requests_ > 1) {
    rows.emplace_back("requests", std::to_string(requests_) + ", the last one below");
  }
  if (!last_.prompt_name().empty()) rows.emplace_back("prompt", last_.prompt_name());
  AppendReports(last_.kernel(), last_.timing(), last_.batch(), last_.memory(), round_trip_us,
                &rows);
  if (last_.has_fidelity()) {
    const v1::CosineFidelity& fidelity = last_.fidelity();
    rows.emplace_back("fidelity", "cosine about " + FormatReal(fidelity.cosine(), "%.6f") +
                                      " at least, by " + std::to_string(fidelity.rows()) +
                                      " rows a layer and " +
                                      std::to_string(fidelity.comparisons()) + " comparisons");
  }
  const std::string text = FormatRows(rows) + "\n";
  const bool labels = last_.labels_size() > 0;
  if (std::max(inputs_.size(), spans_.size()) > kMostTexts || (per_token() && !labels)) {
    return text + "The values are in --output json" + (sparse_ ? "" : " and --output npy") + ".\n";
  }
  if (sparse_) return text + SparseTable();
  return text + (labels ? LabelTable() : CosineTable());
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

Json EncodeAnswer::ToJson(double round_trip_us) const {
  Json json = cli::ToJson(last_);
  for (const char* repeated : {"lengths", "token_counts", "truncated", "request_id"}) {
    json.erase(repeated);
  }
  json["round_trip_us"] = round_trip_us;
  if (!sparse_) json["shape"] = {rows(), width_};
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
  json["sequences"] = std::move(sequences);
  return json;
}

}  // namespace castor::cli

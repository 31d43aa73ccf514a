// Joins the answers to all requests of `castor encode`, and shows them. Rows that have been written
// can be discarded; the totals still count them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/report.h"

namespace castor::cli {

class EncodeAnswer {
 public:
  // Adds one response. `inputs` name its sequences, `spans` its ranges, in the order of the
  // sequences. Not OK, naming the field, if a count in it contradicts the request or the rest of
  // the response: the peer may not be a castor-server. Do not use the object after that.
  absl::Status Append(v1::EncodeResponse response, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& spans = {});

  // How many sequences and spans the model truncated: "2 of 3 inputs and 1 of 9 spans"; empty if
  // none.
  std::string TruncationText() const;
  // The truncated spans, or sequences if there are no spans: "[0], [7]".
  const std::string& TruncatedPlaces() const {
    return truncated_spans_.all > 0 ? truncated_spans_.places : truncated_inputs_.places;
  }

  bool sparse() const { return sparse_; }
  int64_t rows() const { return discarded_.rows + kept_rows(); }
  int64_t width() const { return width_; }  // elements of a row
  // The values of the rows, or of `sparse`, since the last DiscardRows.
  const std::vector<float>& values() const { return values_; }

  // Drops the rows and names so far, and keeps counts and reports.
  void DiscardRows();
  // Whether Table shows each row: there are few, and they were not discarded.
  bool ShowsRows() const;

  std::string Table(double round_trip_us) const;
  // Sequences: an entry for each sequence since the last DiscardRows. Reports: totals over all
  // sequences.
  Json Sequences() const;
  Json Reports(double round_trip_us) const;

 private:
  absl::Status AppendLengths(const google::protobuf::RepeatedField<int64_t>& lengths, int64_t rows,
                             size_t sequences, const std::string& field);
  absl::Status AppendRows(const v1::EncodeResponse& response, size_t sequences, size_t spans);
  absl::Status AppendSparse(const v1::SparseRows& rows, size_t sequences);
  int64_t kept_rows() const {
    return width_ == 0 || sparse_ ? 0 : static_cast<int64_t>(values_.size()) / width_;
  }
  Json SpansJson(size_t sequence) const;
  std::string Shape() const;

  // Tables of all sequences, one for each kind of answer.
  std::string CosineTable() const;  // or every span
  std::string LabelTable() const;
  std::string SparseTable() const;
  template <typename Cell>
  std::string SequenceTable(const std::string& title, const Cell& cell) const;
  std::string LabelsOfSequence(size_t sequence) const;
  std::string LabelsOfTokens(size_t sequence) const;

  bool sparse_ = false;
  bool per_token_ = false;
  std::vector<float> values_;
  int64_t width_ = 0;
  std::vector<int32_t> indices_;       // sparse: one for each value
  std::vector<int64_t> firsts_ = {0};  // of each sequence among rows, or sparse among values
  std::vector<int64_t> token_counts_;
  std::vector<bool> truncated_;
  std::vector<std::string> inputs_;
  std::vector<v1::PooledSpan> spans_;  // a row for each, if there are any
  std::vector<std::string> span_names_;
  v1::EncodeResponse last_;  // its labels and reports
  size_t requests_ = 0;

  struct Counts {
    size_t inputs = 0, spans = 0, values = 0;
    int64_t rows = 0, tokens = 0;
  };
  Counts discarded_;
  TruncationCount truncated_inputs_, truncated_spans_;
  Counts Count() const;  // of everything
};

}  // namespace castor::cli

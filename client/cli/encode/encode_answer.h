// The answers of `castor encode`, of all its requests joined, and how they are shown. What has been
// written can be forgotten, and is then only counted.
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
  // Adds one response. `inputs` say what to call each of its sequences, `spans` each of its ranges,
  // which are in the order of the sequences. Not OK, naming the field, if any count in it disagrees
  // with the request or with what is there: whoever answers may be no castor-server. Do not use the
  // object after that.
  absl::Status Append(v1::EncodeResponse response, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& spans = {});

  // Of how many sequences and spans the model's length cut something off: "2 of 3 texts and 1 of 9
  // spans"; empty if of none.
  std::string TruncationText() const;
  // These sequences, or spans where there are any: "[0], [7]".
  const std::string& TruncatedPlaces() const {
    return truncated_spans_.all > 0 ? truncated_spans_.places : truncated_inputs_.places;
  }

  bool sparse() const { return sparse_; }
  size_t inputs() const { return discarded_.inputs + inputs_.size(); }
  int64_t rows() const { return discarded_.rows + kept_rows(); }
  int64_t width() const { return width_; }  // elements of a row
  // The values of the rows since the last DiscardRows, or those of `sparse`.
  const std::vector<float>& values() const { return values_; }

  // Everything so far but the reports.
  void DiscardRows();
  // Whether Table shows the rows one by one, unless they are forgotten.
  bool ShowsRows() const;

  std::string Table(double round_trip_us) const;
  // Sequences: an entry for each sequence since the last DiscardRows. Reports: totals over all of
  // them.
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

  // Every sequence, each as one kind of answer is best read.
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

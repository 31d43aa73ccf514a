// The answers of `castor encode`, of all its requests joined, and how they are shown.
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
  std::string CutText() const;

  bool sparse() const { return sparse_; }
  int64_t rows() const { return width_ == 0 ? 0 : static_cast<int64_t>(values_.size()) / width_; }
  int64_t width() const { return width_; }                      // elements of a row
  const std::vector<float>& values() const { return values_; }  // [rows, width], or of `sparse`

  std::string Table(double round_trip_us) const;
  Json ToJson(double round_trip_us) const;

 private:
  absl::Status AppendLengths(const google::protobuf::RepeatedField<int64_t>& lengths, int64_t rows,
                             size_t sequences, const std::string& field);
  absl::Status AppendRows(const v1::EncodeResponse& response, size_t sequences, size_t spans);
  absl::Status AppendSparse(const v1::SparseRows& rows, size_t sequences);
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
};

}  // namespace castor::cli

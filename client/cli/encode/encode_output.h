// Where the answers of `castor encode` go as they come, and how far it is.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/command.h"
#include "client/cli/encode/encode_answer.h"
#include "client/cli/screen.h"
#include "client/file.h"
#include "client/npy.h"

namespace castor::cli {

// Writes rows of .npy and JSON at once, and a table at the end.
class AnswerOutput {
 public:
  explicit AnswerOutput(const CommonFlags& flags) : flags_(flags), format_(flags.format()) {}

  // What has been added to the answer. Both report errors and return the exit code.
  int Take(EncodeAnswer* answer);
  int End(const EncodeAnswer& answer, double round_trip_us);

 private:
  absl::Status Open();
  absl::Status AppendJson(const EncodeAnswer& answer);

  const CommonFlags& flags_;
  const OutputFormat format_;
  std::optional<client::NpyRows> npy_;
  std::optional<client::OutputFile> json_;
};

// How far it is, on a line of the terminal.
class Progress {
 public:
  // `bytes`: the size of all inputs, where it is known.
  explicit Progress(std::optional<int64_t> bytes) : all_bytes_(bytes) {}

  void Advance(size_t inputs, size_t bytes);
  void Clear() { line_.Clear(); }

 private:
  using Time = std::chrono::steady_clock::time_point;

  StatusLine line_;
  const std::optional<int64_t> all_bytes_;
  const Time begun_ = std::chrono::steady_clock::now();
  Time shown_;
  size_t inputs_ = 0;
  size_t bytes_ = 0;
};

// The spans of `castor encode`: ranges of its inputs, given as flags or as the lines of a document.
struct SpanFlags {
  std::vector<std::string> ranges;  // "0:120", of every input
  v1::Spans::Unit unit = v1::Spans::UNIT_DEFAULT;
};

// Returns the option that gives ranges.
CLI::Option* AddSpanFlags(CLI::App* command, SpanFlags* flags);

// Adds the ranges to each of the request's `sequences`, in order, and a label for each: the
// sequence's own and the range. Throws UsageError for what is no range.
void AddSpans(const SpanFlags& flags, const std::vector<std::string>& sequences,
              v1::EncodeRequest* request, std::vector<std::string>* labels);

// Makes a text with a range for every line that is not blank; the lines are the labels. Throws
// UsageError if there are none.
void AddDocument(std::string text, const std::string& name, v1::EncodeRequest* request,
                 std::vector<std::string>* labels);

}  // namespace castor::cli

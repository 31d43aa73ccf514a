// Writes the answers of `castor encode` as they come, and shows its progress.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "client/cli/command.h"
#include "client/cli/encode/encode_answer.h"
#include "client/cli/screen.h"
#include "client/file.h"
#include "client/npy.h"

namespace castor::cli {

// Writes rows of .npy and JSON as they come, and a table at the end.
class AnswerOutput {
 public:
  explicit AnswerOutput(const CommonFlags& flags) : flags_(flags), format_(flags.format()) {}

  // Write the rows added since the last call; End also writes the totals. Both report errors and
  // return the exit code.
  int Write(EncodeAnswer* answer);
  int End(const EncodeAnswer& answer, double round_trip_us);

 private:
  absl::Status Open();
  absl::Status AppendJson(const EncodeAnswer& answer);

  const CommonFlags& flags_;
  const OutputFormat format_;
  std::optional<client::NpyRows> npy_;
  std::optional<client::OutputFile> json_;
};

// The number of inputs answered so far and their rate, on a line of the terminal.
class Progress {
 public:
  void Advance(size_t inputs);
  void Clear() { line_.Clear(); }

 private:
  using Time = std::chrono::steady_clock::time_point;

  StatusLine line_;
  const Time begun_ = std::chrono::steady_clock::now();
  Time shown_;
  size_t inputs_ = 0;
};

}  // namespace castor::cli

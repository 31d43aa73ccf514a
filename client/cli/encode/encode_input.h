// The inputs of `castor encode`: texts from arguments, a file or standard input, text pairs, a
// document, token ids or embeddings.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "castor/v1/encoder.pb.h"
#include "client/file.h"

namespace castor::cli {

// Ranges of the inputs, which are pooled by themselves.
struct SpanFlags {
  std::vector<std::string> ranges;  // "0:120", of every input
  v1::Spans::Unit unit = v1::Spans::UNIT_DEFAULT;
};

struct InputFlags {
  std::vector<std::string> texts;
  std::string text_file;  // one text a line; "-" is standard input
  std::string document;   // a text whose lines are spans; "-" is standard input
  std::vector<std::string> pairs;
  bool allow_special_tokens = false;
  std::vector<std::string> ids;  // one sequence each: "101 2023 102"
  std::string embeddings;        // .npy
  std::vector<int64_t> lengths;  // of the embeddings
  size_t batch = 256;            // texts per request
  SpanFlags spans;
};

struct Input {
  v1::EncodeRequest request;             // only the input and its spans are set
  std::vector<std::string> labels;       // what to call each sequence in the output
  std::vector<std::string> span_labels;  // one per range, if there are any
};

void AddInputFlags(CLI::App* command, InputFlags* flags);

// Adds two of the flags above: texts as arguments, named `name` in the help, and --text-file.
struct TextOptions {
  CLI::Option *texts, *file;
};
TextOptions AddTextFlags(CLI::App* command, const std::string& name, const std::string& help,
                         InputFlags* flags);

// A file; "-" and "" are standard input. Throws UsageError.
client::InputFile OpenInput(const std::string& path);

// The lines of a file. Throws UsageError for what cannot be read or is no text.
class LineReader {
 public:
  explicit LineReader(client::InputFile file) : file_(std::move(file)) {}

  // Without its end; false where the file ends, which must have a line.
  bool Next(std::string* line);

 private:
  client::InputFile file_;
  std::string block_;
  size_t begin_ = 0;  // of what is left in the block
  size_t lines_ = 0;  // read
};

// The inputs, request by request. Texts are read when they are asked for, the rest at once.
class InputReader {
 public:
  // Both throw UsageError when what the flags name cannot be read or holds nothing. `flags` must
  // outlive the reader.
  explicit InputReader(const InputFlags& flags);
  std::optional<Input> Next();

 private:
  bool NextText(std::string* text);
  std::optional<Input> NextTexts();

  const InputFlags& flags_;
  std::optional<LineReader> lines_;
  size_t texts_ = 0;  // read
  bool done_ = false;
};

}  // namespace castor::cli

// Reads the inputs of `castor encode`: texts from arguments, a file or standard input, text pairs,
// a document, token ids or embeddings.
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

// Ranges of each input that are pooled separately.
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
  std::vector<std::string> labels;       // each sequence's name in the output
  std::vector<std::string> span_labels;  // one per range, if there are any
};

void AddInputFlags(CLI::App* command, InputFlags* flags);

// Adds the texts as arguments, called `name` in the help, and --text-file.
struct TextOptions {
  CLI::Option *texts, *file;
};
TextOptions AddTextFlags(CLI::App* command, const std::string& name, const std::string& help,
                         InputFlags* flags);

// A file; "-" and "" are standard input. Throws UsageError.
client::InputFile OpenInput(const std::string& path);

// Reads the lines of a file. Throws UsageError if it cannot be read or is not UTF-8.
class LineReader {
 public:
  explicit LineReader(client::InputFile file) : file_(std::move(file)) {}

  // Sets the next line, without its end; false at the end of the file. An empty file is an error.
  bool Next(std::string* line);

 private:
  client::InputFile file_;
  std::string block_;
  size_t begin_ = 0;  // of the rest of the block
  size_t lines_ = 0;  // read
};

// Makes the requests from the inputs. Texts are read as requests need them, other inputs at once.
class InputReader {
 public:
  // Both throw UsageError for an input that cannot be read or is empty. `flags` must outlive the
  // reader.
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

// The inputs of `castor encode`: texts from arguments, a file or standard input, text pairs, a
// document, token ids or embeddings.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "castor/v1/encoder.pb.h"

namespace castor::cli {

// Ranges of the inputs.
struct SpanFlags {
  std::vector<std::string> ranges;  // "0:120", of every input
  std::string unit;                 // empty: the contract's default
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
  std::vector<std::string> labels;       // of sequences that are not texts
  std::vector<std::string> span_labels;  // one per range, if there are any

  // What to call each sequence in the output.
  std::vector<std::string> Labels() const;
};

void AddInputFlags(CLI::App* command, InputFlags* flags);

// Reads files and standard input; throws UsageError when they cannot be read or hold nothing.
std::vector<Input> ReadInput(const InputFlags& flags);

}  // namespace castor::cli

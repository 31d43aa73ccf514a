// The spans of `castor encode`: ranges of its inputs, given as flags or as the lines of a document.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "castor/v1/encoder.pb.h"

namespace castor::cli {

struct SpanFlags {
  std::vector<std::string> ranges;  // "0:120", of every input
  std::string unit;                 // empty: the contract's default
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

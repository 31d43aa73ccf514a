#include "client/cli/encode/encode_spans.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/values.h"

namespace castor::cli {
namespace {

const std::map<std::string, v1::Spans::Unit> kUnits = {{"characters", v1::Spans::CHARACTERS},
                                                       {"bytes", v1::Spans::BYTES},
                                                       {"tokens", v1::Spans::TOKENS}};

bool ParseNumber(std::string_view text, int64_t* number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && rest == end;
}

v1::Spans::Range ParseRange(const std::string& text) {
  const size_t colon = text.find(':');
  int64_t begin = 0, end = 0;
  if (colon == std::string::npos || !ParseNumber(text.substr(0, colon), &begin) ||
      !ParseNumber(text.substr(colon + 1), &end)) {
    throw UsageError("--spans '" + text + "' must look like BEGIN:END");
  }
  v1::Spans::Range range;
  range.set_begin(begin);
  range.set_end(end);
  return range;
}

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

}  // namespace

CLI::Option* AddSpanFlags(CLI::App* command, SpanFlags* flags) {
  const std::string group = "Spans (late chunking)";
  CLI::Option* spans =
      command
          ->add_option("--spans", flags->ranges,
                       "Pool these ranges of each input, one row each, instead of the whole: "
                       "0:120,100:260 (the end is exclusive; they may overlap)")
          ->type_name("BEGIN:END,...")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->group(group);
  command
      ->add_option("--span-unit", flags->unit,
                   "characters, bytes or tokens (default: characters of texts, tokens of the rest)")
      ->type_name("UNIT")
      ->check(CLI::IsMember(kUnits).description(""))
      ->needs(spans)
      ->group(group);
  return spans;
}

void AddSpans(const SpanFlags& flags, const std::vector<std::string>& sequences,
              v1::EncodeRequest* request, std::vector<std::string>* labels) {
  if (flags.ranges.empty()) return;
  v1::Spans* const spans = request->mutable_spans();
  if (!flags.unit.empty()) spans->set_unit(kUnits.at(flags.unit));
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (const std::string& text : flags.ranges) {
      v1::Spans::Range* const range = spans->add_ranges();
      *range = ParseRange(text);
      range->set_sequence(static_cast<int32_t>(s));
      labels->push_back("[" + text + "] of " + sequences[s]);
    }
  }
}

void AddDocument(std::string text, const std::string& name, v1::EncodeRequest* request,
                 std::vector<std::string>* labels) {
  if (const auto invalid = FindInvalidUtf8(text)) {
    throw UsageError(name + " is not UTF-8: byte " + std::to_string(*invalid + 1));
  }
  v1::Spans* const spans = request->mutable_spans();
  spans->set_unit(v1::Spans::BYTES);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (!IsBlank(line)) {
      v1::Spans::Range* const range = spans->add_ranges();
      range->set_begin(static_cast<int64_t>(begin));
      range->set_end(static_cast<int64_t>(end));
      labels->emplace_back(line);
    }
    begin = end + 1;
  }
  if (labels->empty()) throw UsageError(name + " contains no text");
  request->mutable_texts()->add_texts(std::move(text));
}

}  // namespace castor::cli

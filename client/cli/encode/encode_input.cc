#include "client/cli/encode/encode_input.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/values.h"
#include "client/file.h"
#include "client/npy.h"

namespace castor::cli {
namespace {

constexpr size_t kBlock = 1 << 20;  // bytes of a file to read at a time

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

// Returns the option that gives ranges.
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

// Adds the ranges to each of the request's `sequences`, in order, and a label for each: the
// sequence's own and the range. Throws UsageError for what is no range.
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

// Makes a text with a range for every line that is not blank; the lines are the labels. Throws
// UsageError if there are none.
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

// Adds one line of the file, without its end.
void AddLine(std::string line, const client::InputFile& file, std::vector<std::string>* lines) {
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (const auto invalid = FindInvalidUtf8(line)) {
    throw UsageError("line " + std::to_string(lines->size() + 1) + " of " + file.name() +
                     " is not UTF-8: byte " + std::to_string(*invalid + 1));
  }
  lines->push_back(std::move(line));
}

std::vector<std::string> ReadLines(client::InputFile file) {
  std::vector<std::string> lines;
  std::string line;
  while (true) {
    std::string block;
    const absl::Status status = file.Append(kBlock, &block);
    if (!status.ok()) throw UsageError(std::string(status.message()));
    if (block.empty()) break;
    std::string_view rest = block;
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos;) {
      line += rest.substr(0, end);
      AddLine(std::exchange(line, {}), file, &lines);
      rest.remove_prefix(end + 1);
    }
    line += rest;
    // The file may be a device without an end.
    if (line.size() > INT_MAX) {
      throw UsageError("line " + std::to_string(lines.size() + 1) + " of " + file.name() +
                       " is longer than a message can be");
    }
  }
  if (!line.empty()) AddLine(std::move(line), file, &lines);
  if (lines.empty()) throw UsageError(file.name() + " contains no text");
  return lines;
}

std::vector<std::string> ReadTexts(const InputFlags& flags) {
  if (!flags.texts.empty()) return flags.texts;
  if (flags.text_file.empty() || flags.text_file == "-") {
    return ReadLines(client::InputFile::StandardInput());
  }
  auto file = client::InputFile::Open(flags.text_file);
  if (!file.ok()) throw UsageError(std::string(file.status().message()));
  return ReadLines(*std::move(file));
}

std::vector<int64_t> ParseIds(const std::string& text) {
  std::vector<int64_t> ids;
  const char* position = text.data();
  const char* const end = position + text.size();
  while (true) {
    while (position != end && (*position == ' ' || *position == ',')) ++position;
    if (position == end) break;
    int64_t id = 0;
    const auto [rest, error] = std::from_chars(position, end, id);
    if (error != std::errc()) {
      throw UsageError("--ids '" + text + "' must be a list of whole numbers");
    }
    ids.push_back(id);
    position = rest;
  }
  if (ids.empty()) throw UsageError("--ids '" + text + "' is empty");
  return ids;
}

Input FromDocument(const InputFlags& flags) {
  auto file = flags.document == "-" ? client::InputFile::StandardInput()
                                    : client::InputFile::Open(flags.document);
  if (!file.ok()) throw UsageError(std::string(file.status().message()));
  std::string text;
  for (size_t before = 0;; before = text.size()) {
    const absl::Status status = file->Append(kBlock, &text);
    if (!status.ok()) throw UsageError(std::string(status.message()));
    if (text.size() == before) break;
    if (text.size() > INT_MAX) {
      throw UsageError(file->name() + " is longer than a message can be");
    }
  }
  Input input;
  AddDocument(std::move(text), file->name(), &input.request, &input.span_labels);
  input.request.mutable_texts()->set_allow_special_tokens(flags.allow_special_tokens);
  return input;
}

Input FromIds(const InputFlags& flags) {
  Input input;
  v1::TokenBatch* tokens = input.request.mutable_tokens();
  for (const std::string& text : flags.ids) {
    const std::vector<int64_t> ids = ParseIds(text);
    tokens->mutable_ids()->Add(ids.begin(), ids.end());
    tokens->add_lengths(static_cast<int64_t>(ids.size()));
    input.labels.push_back(text);
  }
  return input;
}

Input FromEmbeddings(const InputFlags& flags) {
  auto tensor = client::ReadNpy(flags.embeddings);
  if (!tensor.ok()) throw UsageError(std::string(tensor.status().message()));
  Input input;
  *input.request.mutable_embeddings()->mutable_values() = *std::move(tensor);
  input.request.mutable_embeddings()->mutable_lengths()->Assign(flags.lengths.begin(),
                                                                flags.lengths.end());
  const size_t sequences = std::max<size_t>(1, flags.lengths.size());
  for (size_t i = 0; i < sequences; ++i) input.labels.push_back("sequence " + std::to_string(i));
  return input;
}

}  // namespace

void AddInputFlags(CLI::App* command, InputFlags* flags) {
  const std::string group = "Input (one of; default: texts from standard input, one per line)";
  CLI::Option* texts = command->add_option("texts", flags->texts, "Texts to embed")
                           ->type_name("TEXT")
                           ->check(Utf8());
  CLI::Option* file =
      command
          ->add_option("--text-file", flags->text_file,
                       "Read texts from this file, one per line; - is standard input")
          ->type_name("FILE")
          ->check(FileName())
          ->excludes(texts)
          ->group(group);
  CLI::Option* document =
      command
          ->add_option("--document", flags->document,
                       "Read this file as one text and return a row for each line, computed in the "
                       "context of the whole; - is standard input")
          ->type_name("FILE")
          ->check(FileName())
          ->excludes(texts)
          ->excludes(file)
          ->group(group);
  CLI::Option* ids = command
                         ->add_option("--ids", flags->ids,
                                      "Token ids of one sequence, special tokens included: '101 "
                                      "2023 102'; repeatable")
                         ->type_name("IDS")
                         ->allow_extra_args(false)
                         ->excludes(texts)
                         ->excludes(file)
                         ->excludes(document)
                         ->group(group);
  CLI::Option* embeddings =
      command->add_option("--embeddings", flags->embeddings, "Word embeddings [tokens, hidden]")
          ->type_name("FILE.npy")
          ->check(FileName())
          ->excludes(texts)
          ->excludes(file)
          ->excludes(document)
          ->excludes(ids)
          ->group(group);
  command->add_option("--lengths", flags->lengths, "Tokens of each sequence of --embeddings")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(Number(int64_t{1}, int64_t{1} << 40))
      ->needs(embeddings)
      ->group(group);
  command
      ->add_option("--pair", flags->pairs,
                   "Second text of a pair; once per text, in the same order")
      ->type_name("TEXT")
      ->check(Utf8())
      ->allow_extra_args(false)
      ->excludes(document)
      ->excludes(ids)
      ->excludes(embeddings)
      ->group(group);
  command
      ->add_flag("--allow-special-tokens", flags->allow_special_tokens,
                 "Let markers such as [SEP] in the texts act as special tokens")
      ->excludes(ids)
      ->excludes(embeddings)
      ->group(group);
  command->add_option("--batch", flags->batch, "Texts per request")
      ->type_name("N")
      ->transform(Number(1, 4096))
      ->capture_default_str()
      ->excludes(document)
      ->excludes(ids)
      ->excludes(embeddings)
      ->group(group);
  AddSpanFlags(command, &flags->spans)->excludes(document);
}

std::vector<std::string> Input::Labels() const {
  if (!request.has_texts()) return labels;
  const v1::TextBatch& batch = request.texts();
  std::vector<std::string> names(batch.texts().begin(), batch.texts().end());
  for (int i = 0; i < batch.pairs_size(); ++i) names[i] += " | " + batch.pairs(i);
  return names;
}

namespace {

// The inputs without their spans, but for a document's.
std::vector<Input> ReadSequences(const InputFlags& flags) {
  if (!flags.ids.empty()) return {FromIds(flags)};
  if (!flags.embeddings.empty()) return {FromEmbeddings(flags)};
  if (!flags.document.empty()) return {FromDocument(flags)};
  std::vector<std::string> texts = ReadTexts(flags);
  if (!flags.pairs.empty() && flags.pairs.size() != texts.size()) {
    throw UsageError("--pair is given " + std::to_string(flags.pairs.size()) + " times for " +
                     std::to_string(texts.size()) + " texts");
  }
  std::vector<Input> inputs;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i % flags.batch == 0) inputs.emplace_back();
    Input& input = inputs.back();
    v1::TextBatch* batch = input.request.mutable_texts();
    batch->add_texts(std::move(texts[i]));
    if (!flags.pairs.empty()) batch->add_pairs(flags.pairs[i]);
    batch->set_allow_special_tokens(flags.allow_special_tokens);
  }
  return inputs;
}

}  // namespace

std::vector<Input> ReadInput(const InputFlags& flags) {
  std::vector<Input> inputs = ReadSequences(flags);
  for (Input& input : inputs) {
    AddSpans(flags.spans, input.Labels(), &input.request, &input.span_labels);
  }
  return inputs;
}

}  // namespace castor::cli

#include "client/cli/encode/encode_input.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <climits>
#include <map>
#include <string_view>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/values.h"
#include "client/file.h"

namespace castor::cli {
namespace {

constexpr size_t kBlock = 1 << 20;  // bytes of a file to read at a time
constexpr char kInputGroup[] = "Input (one of; default: texts from standard input, one per line)";

const std::map<std::string, v1::Spans::Unit> kUnits = {{"characters", v1::Spans::CHARACTERS},
                                                       {"bytes", v1::Spans::BYTES},
                                                       {"tokens", v1::Spans::TOKENS}};

v1::Spans::Range ParseRange(const std::string& text) {
  const size_t colon = text.find(':');
  int64_t begin = 0, end = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(0, colon), &begin) ||
      !absl::SimpleAtoi(text.substr(colon + 1), &end)) {
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
  AddOption(command, group, "--span-unit", &flags->unit, "UNIT",
            "characters, bytes or tokens (default: characters of texts, tokens of the rest)",
            OneOf(kUnits))
      ->needs(spans);
  return spans;
}

// Adds the ranges to each of the request's `sequences`, in order, and a label for each: the range
// and its sequence.
void AddSpans(const SpanFlags& flags, const std::vector<std::string>& sequences,
              v1::EncodeRequest* request, std::vector<std::string>* labels) {
  if (flags.ranges.empty()) return;
  v1::Spans* const spans = request->mutable_spans();
  spans->set_unit(flags.unit);
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (const std::string& text : flags.ranges) {
      v1::Spans::Range* const range = spans->add_ranges();
      *range = ParseRange(text);
      range->set_sequence(static_cast<int32_t>(s));
      labels->push_back("[" + text + "] of " + sequences[s]);
    }
  }
}

// Adds a text with a range for every line that is not blank; the lines are the labels.
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

std::vector<int64_t> ParseIds(const std::string& text) {
  std::vector<int64_t> ids;
  for (const auto word : absl::StrSplit(text, absl::ByAnyChar(" ,"), absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(word, &ids.emplace_back())) {
      throw UsageError("--ids '" + text + "' must be a list of whole numbers");
    }
  }
  if (ids.empty()) throw UsageError("--ids '" + text + "' is empty");
  return ids;
}

Input FromDocument(const InputFlags& flags) {
  client::InputFile file = OpenInput(flags.document);
  std::string text;
  for (size_t before = 0;; before = text.size()) {
    OrUsageError(file.Append(kBlock, &text));
    if (text.size() == before) break;
    if (text.size() > INT_MAX) {
      throw UsageError(file.name() + " is longer than a message can be");
    }
  }
  Input input;
  AddDocument(std::move(text), file.name(), &input.request, &input.span_labels);
  input.request.mutable_texts()->set_allow_special_tokens(flags.allow_special_tokens);
  input.labels.push_back(input.request.texts().texts(0));
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
  Input input;
  *input.request.mutable_embeddings()->mutable_values() = ReadTensor(flags.embeddings);
  input.request.mutable_embeddings()->mutable_lengths()->Assign(flags.lengths.begin(),
                                                                flags.lengths.end());
  const size_t sequences = std::max<size_t>(1, flags.lengths.size());
  for (size_t i = 0; i < sequences; ++i) input.labels.push_back("sequence " + std::to_string(i));
  return input;
}

}  // namespace

client::InputFile OpenInput(const std::string& path) {
  if (path.empty() || path == "-") return client::InputFile::StandardInput();
  return OrUsageError(client::InputFile::Open(path));
}

TextOptions AddTextFlags(CLI::App* command, const std::string& name, const std::string& help,
                         InputFlags* flags) {
  CLI::Option* const texts =
      command->add_option(name, flags->texts, help)->type_name("TEXT")->check(Utf8());
  return {texts,
          AddOption(command, kInputGroup, "--text-file", &flags->text_file, "FILE",
                    "Read texts from this file, one per line; - is standard input", FileName())
              ->excludes(texts)};
}

void AddInputFlags(CLI::App* command, InputFlags* flags) {
  const std::string group = kInputGroup;
  const auto [texts, file] = AddTextFlags(command, "texts", "Texts to embed", flags);
  CLI::Option* document =
      AddOption(command, group, "--document", &flags->document, "FILE",
                "Read this file as one text and return a row for each line, computed in the "
                "context of the whole; - is standard input",
                FileName())
          ->excludes(texts)
          ->excludes(file);
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
  CLI::Option* embeddings = AddOption(command, group, "--embeddings", &flags->embeddings,
                                      "FILE.npy", "Word embeddings [tokens, hidden]", FileName())
                                ->excludes(texts)
                                ->excludes(file)
                                ->excludes(document)
                                ->excludes(ids);
  AddOption(command, group, "--lengths", &flags->lengths, "N,N,...",
            "Tokens of each sequence of --embeddings", Number(int64_t{1}, int64_t{1} << 40))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->needs(embeddings);
  AddOption(command, group, "--pair", &flags->pairs, "TEXT",
            "Second text of a pair; once per text, in the same order", Utf8())
      ->allow_extra_args(false)
      ->excludes(document)
      ->excludes(ids)
      ->excludes(embeddings);
  command
      ->add_flag("--allow-special-tokens", flags->allow_special_tokens,
                 "Let markers such as [SEP] in the texts act as special tokens")
      ->excludes(ids)
      ->excludes(embeddings)
      ->group(group);
  AddOption(command, group, "--batch", &flags->batch, "N", "Texts per request", Number(1, 4096))
      ->capture_default_str()
      ->excludes(document)
      ->excludes(ids)
      ->excludes(embeddings);
  AddSpanFlags(command, &flags->spans)->excludes(document);
}

bool LineReader::Next(std::string* line) {
  line->clear();
  const std::string place = "line " + std::to_string(lines_ + 1) + " of " + file_.name();
  while (block_.find('\n', begin_) == std::string::npos) {
    line->append(block_, begin_);
    block_.clear();
    begin_ = 0;
    // The file may be an endless device.
    if (line->size() > INT_MAX) throw UsageError(place + " is longer than a message can be");
    OrUsageError(file_.Append(kBlock, &block_));
    if (!block_.empty()) continue;
    if (line->empty()) {
      if (lines_ == 0) throw UsageError(file_.name() + " contains no text");
      return false;
    }
    block_ = "\n";  // ends the last line
  }
  const size_t end = block_.find('\n', begin_);
  line->append(block_, begin_, end - begin_);
  begin_ = end + 1;
  if (!line->empty() && line->back() == '\r') line->pop_back();
  if (const auto invalid = FindInvalidUtf8(*line)) {
    throw UsageError(place + " is not UTF-8: byte " + std::to_string(*invalid + 1));
  }
  ++lines_;
  return true;
}

InputReader::InputReader(const InputFlags& flags) : flags_(flags) {
  if (!flags.ids.empty() || !flags.embeddings.empty() || !flags.document.empty()) return;
  if (flags.texts.empty()) lines_.emplace(OpenInput(flags.text_file));
}

bool InputReader::NextText(std::string* text) {
  if (lines_) return lines_->Next(text);
  if (texts_ == flags_.texts.size()) return false;
  *text = flags_.texts[texts_];
  return true;
}

std::optional<Input> InputReader::NextTexts() {
  Input input;
  v1::TextBatch* const batch = input.request.mutable_texts();
  batch->set_allow_special_tokens(flags_.allow_special_tokens);
  const size_t pairs = flags_.pairs.size();
  for (std::string text; input.labels.size() < flags_.batch; ++texts_) {
    done_ = !NextText(&text);
    if (pairs > 0 && (done_ ? texts_ < pairs : texts_ == pairs)) {
      throw UsageError("--pair is given " + std::to_string(pairs) + " times, for " +
                       (done_ ? std::to_string(texts_) : "more") + " texts");
    }
    if (done_) break;
    input.labels.push_back(text);
    if (pairs > 0) {
      input.labels.back() += " | " + flags_.pairs[texts_];
      batch->add_pairs(flags_.pairs[texts_]);
    }
    batch->add_texts(std::move(text));
  }
  if (input.labels.empty()) return std::nullopt;
  return input;
}

std::optional<Input> InputReader::Next() {
  if (done_) return std::nullopt;
  std::optional<Input> input;
  if (lines_ || !flags_.texts.empty()) {
    input = NextTexts();
  } else {
    done_ = true;
    input = !flags_.ids.empty()          ? FromIds(flags_)
            : !flags_.embeddings.empty() ? FromEmbeddings(flags_)
                                         : FromDocument(flags_);
  }
  if (input) AddSpans(flags_.spans, input->labels, &input->request, &input->span_labels);
  return input;
}

}  // namespace castor::cli

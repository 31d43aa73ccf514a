#include "client/cli/encode_input.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iostream>
#include <utility>

#include "client/cli/command.h"
#include "client/npy.h"

namespace castor::cli {
namespace {

std::vector<std::string> ReadLines(std::istream& stream) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> ReadTexts(const InputFlags& flags) {
  if (!flags.texts.empty()) return flags.texts;
  std::vector<std::string> texts;
  if (flags.text_file.empty() || flags.text_file == "-") {
    texts = ReadLines(std::cin);
    if (texts.empty()) throw UsageError("standard input holds no text");
    return texts;
  }
  std::ifstream file(flags.text_file);
  if (!file) throw UsageError("cannot open '" + flags.text_file + "'");
  texts = ReadLines(file);
  if (texts.empty()) throw UsageError("'" + flags.text_file + "' holds no text");
  return texts;
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
    if (error != std::errc()) throw UsageError("--ids '" + text + "' is no list of whole numbers");
    ids.push_back(id);
    position = rest;
  }
  if (ids.empty()) throw UsageError("--ids '" + text + "' is empty");
  return ids;
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
  const std::string group = "Input (one of; default: texts from standard input, one a line)";
  CLI::Option* texts =
      command->add_option("texts", flags->texts, "Texts to embed")->type_name("TEXT");
  CLI::Option* file = command
                          ->add_option("--text-file", flags->text_file,
                                       "Read texts from this file, one a line; - is standard input")
                          ->type_name("FILE")
                          ->excludes(texts)
                          ->group(group);
  CLI::Option* ids = command
                         ->add_option("--ids", flags->ids,
                                      "Token ids of one sequence, special tokens included: '101 "
                                      "2023 102'; repeatable")
                         ->type_name("IDS")
                         ->allow_extra_args(false)
                         ->excludes(texts)
                         ->excludes(file)
                         ->group(group);
  CLI::Option* embeddings =
      command->add_option("--embeddings", flags->embeddings, "Word embeddings [tokens, hidden]")
          ->type_name("FILE.npy")
          ->excludes(texts)
          ->excludes(file)
          ->excludes(ids)
          ->group(group);
  command->add_option("--lengths", flags->lengths, "Tokens of each sequence of --embeddings")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40).description(""))
      ->needs(embeddings)
      ->group(group);
  command
      ->add_option("--pair", flags->pairs,
                   "Second text of a text pair; once per text, in their order")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->excludes(ids)
      ->excludes(embeddings)
      ->group(group);
  command
      ->add_flag("--allow-special-tokens", flags->allow_special_tokens,
                 "Let markers such as [SEP] in the texts act as special tokens")
      ->group(group);
}

std::vector<Input> ReadInput(const InputFlags& flags, size_t texts_per_request) {
  if (!flags.ids.empty()) return {FromIds(flags)};
  if (!flags.embeddings.empty()) return {FromEmbeddings(flags)};
  const std::vector<std::string> texts = ReadTexts(flags);
  if (!flags.pairs.empty() && flags.pairs.size() != texts.size()) {
    throw UsageError("--pair is given " + std::to_string(flags.pairs.size()) + " times for " +
                     std::to_string(texts.size()) + " texts");
  }
  std::vector<Input> inputs;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i % texts_per_request == 0) inputs.emplace_back();
    Input& input = inputs.back();
    v1::TextBatch* batch = input.request.mutable_texts();
    batch->add_texts(texts[i]);
    if (!flags.pairs.empty()) batch->add_pairs(flags.pairs[i]);
    batch->set_allow_special_tokens(flags.allow_special_tokens);
    input.labels.push_back(flags.pairs.empty() ? texts[i] : texts[i] + " | " + flags.pairs[i]);
  }
  return inputs;
}

}  // namespace castor::cli

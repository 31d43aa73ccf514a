#include "engine/encoder/directory/late_interaction.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/regular_file.h"
#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/directory/directory_keys.h"
#include "engine/encoder/text/prompts.h"

namespace castor::encoder {
namespace {

// The token limits of queries and documents: texts with the prompt of that name.
void ReadLengths(ConfigReader& config, Directory* directory) {
  if (config.Has("query_length")) directory->query_length = ReadSize(config, "query_length", 1);
  if (config.Has("document_length")) {
    directory->document_length = ReadSize(config, "document_length", 1);
  }
}

// The padding of queries, where the file says something of it.
void ReadExpansion(ConfigReader& config, Directory* directory) {
  auto& expansion = directory->late_interaction.expansion;
  if (config.IsNull("query_expansion")) expansion.reset();
  if (!config.Has("query_expansion")) return;
  const std::string strategy = config.String("query_expansion.strategy", "");
  if (strategy != "fixed" && strategy != "min") {
    config.Fail("query_expansion.strategy", "must be \"fixed\" or \"min\"");
  }
  expansion = {.length = ReadSize(config, "query_expansion.length", 1),
               .cuts = strategy == "fixed",
               .attends = config.Bool("query_expansion.attend", false),
               .token = config.String("query_expansion.token", ""),
               .key = config.path() + ": query_expansion: "};
  for (const std::string& key : config.Keys("query_expansion")) {
    if (IsAmong("strategy length attend token", key)) continue;
    config.Fail("query_expansion." + key, "is not known");
  }
}

// string.punctuation of Python, character by character: the default of PyLate and of Stanford.
std::vector<std::string> Punctuation() {
  std::vector<std::string> words;
  for (const char c : std::string_view("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")) words.push_back({c});
  return words;
}

}  // namespace

void ReadQueriesAndDocuments(ConfigReader& config, Directory* directory) {
  ReadLengths(config, directory);
  ReadExpansion(config, directory);
}

void ReadMask(ConfigReader& config, Directory* directory) {
  LateInteractionFiles& late = directory->late_interaction;
  late.masks = true;
  const std::vector<std::string> words = config.Strings("skiplist_words");
  if (words.empty()) return;
  if (!late.skiplist.empty()) {
    config.Fail("skiplist_words", "config_sentence_transformers.json has a skiplist, too");
  }
  late.skiplist = words;
  if (!config.Has("skiplist_tasks")) return;
  const bool one = config.json().at("skiplist_tasks").is_string();
  late.skiplist_tasks =
      one ? std::vector{config.String("skiplist_tasks", "")} : config.Strings("skiplist_tasks");
}

// Source: sentence-transformers 6.2, _parse_model_config of multi_vector_encoder/model.py.
void ReadMultiVector(ConfigReader& config, bool pylate, Directory* directory) {
  LateInteractionFiles& late = directory->late_interaction;
  ReadLengths(config, directory);
  bool marked = false;
  for (const char* key :
       {"query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens",
        "attend_to_mask_tokens", "query_prefix", "document_prefix", "skiplist_words"}) {
    marked |= config.json().contains(key);
  }
  if (config.json().contains("query_expansion")) {
    ReadExpansion(config, directory);
  } else if (marked && config.Bool("do_query_expansion", true)) {
    const bool attends = config.Bool("attend_to_mask_tokens", false);
    late.expansion = {.length = directory->query_length.value_or(32),
                      .attends = config.Bool("attend_to_expansion_tokens", attends),
                      .key = config.path() + ": do_query_expansion: "};
    directory->query_length.reset();
  }
  for (const char* key : {"query_prefix", "document_prefix"}) {
    const std::string prefix = config.String(key, "");
    if (!prefix.empty()) late.prefixes.push_back(prefix);
  }
  if (!pylate) return;
  late.masks = true;
  late.skiplist = config.Has("skiplist_words") ? config.Strings("skiplist_words") : Punctuation();
}

// Source: sentence-transformers 6.2, _maybe_load_stanford_metadata of
// multi_vector_encoder/model.py.
absl::Status ReadStanford(Directory* directory) {
  const std::string file = directory->transformer + "/artifact.metadata";
  absl::StatusOr<ConfigReader> read =
      NameExists(file) ? ReadConfig(File::kArtifact, file)
                       : ConfigReader(File::kArtifact, nlohmann::json::object(), file);
  if (!read.ok()) return read.status();
  ConfigReader& config = *read;
  LateInteractionFiles& late = directory->late_interaction;
  late.masks = true;
  late.expansion = {.length = config.Has("query_maxlen") ? ReadSize(config, "query_maxlen", 1) : 32,
                    .attends = config.Bool("attend_to_mask_tokens", false),
                    .key = file + ": query_maxlen: "};
  if (config.Has("doc_maxlen")) directory->document_length = ReadSize(config, "doc_maxlen", 1);
  if (config.Bool("mask_punctuation", true)) late.skiplist = Punctuation();
  const auto marker = [&](const char* key, const char* prompt, const char* fallback) {
    late.prefixes.push_back(config.String(key, fallback) + " ");
    directory->prompts.all.push_back({.name = prompt, .text = late.prefixes.back()});
  };
  marker("doc_token_id", "document", "[unused1]");  // prompts are sorted by name
  marker("query_token_id", "query", "[unused0]");
  return config.status();
}

absl::Status SetLateInteraction(const LateInteractionFiles& files, const LoadedTokenizer& tokenizer,
                                const BodyInfo& body, InputRules* rules) {
  std::set<std::string> wanted(files.skiplist.begin(), files.skiplist.end());
  std::vector<std::string> fillers;
  if (files.expansion.has_value()) fillers = tokenizer.fillers;
  if (files.expansion.has_value() && !files.expansion->token.empty()) {
    fillers = {files.expansion->token};
  }
  wanted.insert(fillers.begin(), fillers.end());
  if (wanted.empty()) return absl::OkStatus();
  const auto ids = FindTokens(*tokenizer.tokenizer, wanted);
  if (!ids.ok()) return ids.status();
  LateInteraction& late = rules->late;
  for (const std::string& word : files.skiplist) {
    if (ids->contains(word)) late.skipped.push_back(ids->at(word));
  }
  std::ranges::sort(late.skipped);
  const auto has = [&](std::string_view task) {
    return std::ranges::count(files.skiplist_tasks, task) > 0;
  };
  late.skips_queries = has("query");
  late.skips_documents = has("document");
  if (!files.expansion.has_value()) return absl::OkStatus();

  const std::string& key = files.expansion->key;
  const int64_t length = files.expansion->length;
  const bool attends = files.expansion->attends;
  const auto filler =
      std::ranges::find_if(fillers, [&](const std::string& token) { return ids->contains(token); });
  if (filler == fillers.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, "the vocabulary lacks its token, by default the mask token"));
  }
  late.padding = ids->at(*filler);
  std::string problem;
  if (tokenizer.pads_left) problem = "needs a tokenizer with the padding_side \"right\"";
  if (length > rules->max_tokens) {
    problem = absl::StrCat("its length exceeds the limit of ", rules->max_tokens, " tokens");
  }
  // A token whose window holds hidden tokens only would attend to nothing.
  if (!attends && body.local_layers > 0 && length > body.window) {
    problem = "its length exceeds the window of local layers, which needs `attend`";
  }
  if (!attends && (body.disentangled || body.cast.has_value())) {
    problem = "is served for this family with `attend` only";
  }
  if (problem.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, problem));
}

}  // namespace castor::encoder

#include "engine/encoder/text/tokenizer_files.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/regular_file.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/hf/json.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kWhole = "TokenizersBackend";

// A class with a pipeline of its own, which src/assemble.rs makes.
struct TokenizerClass {
  std::string_view name;
  std::string_view vocabulary;  // the file that can replace tokenizer.json; empty: none
  bool merges;                  // it needs merges.txt too
  bool type_ids;                // its default model_input_names hold token_type_ids
};
constexpr TokenizerClass kClasses[] = {
    {"BertTokenizer", "vocab.txt", false, true},
    {"DistilBertTokenizer", "vocab.txt", false, false},
    {"MPNetTokenizer", "vocab.txt", false, false},
    {"RobertaTokenizer", "vocab.json", true, false},
    {"XLMRobertaTokenizer", "", false, false},
    {"CamembertTokenizer", "", false, false},
    {"DebertaV2Tokenizer", "", false, true},
    {"GemmaTokenizer", "", false, false},
    {"Qwen2Tokenizer", "vocab.json", true, false},
    {kWhole, "", false, false},
};

// Other names of these classes.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"ElectraTokenizer", "BertTokenizer"},
    {"MobileBertTokenizer", "BertTokenizer"},
    {"SqueezeBertTokenizer", "BertTokenizer"},
    {"LxmertTokenizer", "BertTokenizer"},
    {"BartTokenizer", "RobertaTokenizer"},
    {"LongformerTokenizer", "RobertaTokenizer"},
    {"LEDTokenizer", "RobertaTokenizer"},
    {"PreTrainedTokenizer", kWhole},
    {"PythonBackend", kWhole},
    {"TokenizersBackend", kWhole},
};

// transformers' TOKENIZER_MAPPING_NAMES, for the families served here.
constexpr std::pair<std::string_view, std::string_view> kClassOfFamily[] = {
    {"bert", "BertTokenizer"},
    {"camembert", "CamembertTokenizer"},
    {"deberta-v2", "DebertaV2Tokenizer"},
    {"distilbert", "BertTokenizer"},
    {"electra", "BertTokenizer"},
    {"gemma", "GemmaTokenizer"},
    {"gemma2", "GemmaTokenizer"},
    {"gemma3_text", "GemmaTokenizer"},
    {"gte", "XLMRobertaTokenizer"},
    {"jina_embeddings_v3", "XLMRobertaTokenizer"},
    {"mpnet", "MPNetTokenizer"},
    {"nomic_bert", "BertTokenizer"},
    {"qwen3", "Qwen2Tokenizer"},
    {"roberta", "RobertaTokenizer"},
    {"xlm-roberta", "XLMRobertaTokenizer"},
};

template <typename Table>
std::string_view Find(const Table& table, std::string_view name) {
  for (const auto& [key, value] : table) {
    if (key == name) return value;
  }
  return {};
}

const TokenizerClass* FindClass(std::string_view name) {
  for (const TokenizerClass& known : kClasses) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

absl::StatusOr<ConfigReader> ReadOptional(File file, const std::string& path) {
  if (!NameExists(path)) return ConfigReader(file, nlohmann::json::object(), path);
  return ReadConfig(file, path);
}

// Those keys of a file that are read, for src/assemble.rs.
nlohmann::json ReadKeys(File file, const ConfigReader& config) {
  nlohmann::json read = nlohmann::json::object();
  for (const auto& [name, value] : config.json().items()) {
    const Key* key = FindKey(file, name);
    if (key != nullptr && key->use == Use::kRead) read[name] = value;
  }
  return read;
}

void ReadLimits(ConfigReader& config, LoadedTokenizer* loaded) {
  // Often 1e30 or Infinity, which mean "no limit".
  constexpr double kLongest = 1 << 20;
  for (const std::string_view key : {"model_max_length", "max_len"}) {
    const nlohmann::json& json = config.json();
    const auto found = json.find(std::string(key));
    if (found == json.end() || *found == "Infinity") continue;
    const double limit = config.Double(key, 0, 1, std::numeric_limits<double>::max());
    if (limit >= 1 && limit <= kLongest) loaded->max_tokens = static_cast<int64_t>(limit);
    if (!found->is_null()) break;
  }
}

void ReadSides(ConfigReader& config, LoadedTokenizer* loaded) {
  for (const std::string_view key : {"truncation_side", "padding_side"}) {
    const std::string side = config.String(key, "");
    if (config.json().contains(std::string(key)) && side != "left" && side != "right") {
      config.Fail(key, "must be \"left\" or \"right\"");
    }
  }
  const std::string side = config.String("truncation_side", "");
  if (!side.empty()) loaded->cut_left = side == "left";
  loaded->pads_left = config.String("padding_side", "") == "left";
}

// The mask token and the end-of-text token, from the first file that names them, else the class's
// own mask token.
std::vector<std::string> ReadFillers(const ConfigReader& config, const ConfigReader& map,
                                     bool whole) {
  std::vector<std::string> fillers;
  for (const char* key : {"mask_token", "eos_token"}) {
    for (const ConfigReader* file : {&config, &map}) {
      const auto found = file->json().find(key);
      if (found == file->json().end()) continue;
      const nlohmann::json token =
          found->is_object() ? nlohmann::json(found->value("content", "")) : *found;
      if (token.is_string()) fillers.push_back(token.get<std::string>());
      break;
    }
    if (fillers.empty() && !whole) fillers = {"[MASK]", "<mask>"};
  }
  return fillers;
}

void ReadInputNames(ConfigReader& config, LoadedTokenizer* loaded) {
  constexpr std::string_view kKey = "model_input_names";
  if (!config.Has(kKey)) return;
  const std::vector<std::string> names = config.Strings(kKey);
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!has("input_ids") || !has("attention_mask")) {
    config.Fail(kKey, "must hold \"input_ids\" and \"attention_mask\"");
  }
  loaded->type_ids = has("token_type_ids");
}

// Reads the files that the class can be made of: tokenizer.json, else older files.
absl::Status ReadFiles(const std::string& folder, const TokenizerClass& known,
                       hf::TokenizerFiles* files) {
  const auto read = [&](std::string_view name, std::optional<std::string>* to) -> absl::Status {
    absl::StatusOr<std::string> text =
        ReadRegularFile(absl::StrCat(folder, "/", std::string(name)), hf::kMaxTokenizerBytes);
    if (!text.ok()) return text.status();
    *to = *std::move(text);
    return absl::OkStatus();
  };
  const auto exists = [&](std::string_view name) {
    return NameExists(absl::StrCat(folder, "/", std::string(name)));
  };
  if (exists("tokenizer.json")) return read("tokenizer.json", &files->tokenizer);
  const bool has_vocabulary = !known.vocabulary.empty() && exists(known.vocabulary);
  if (!has_vocabulary || (known.merges && !exists("merges.txt"))) {
    std::string found = "it is missing";
    for (const std::string_view name :
         {"sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "spm.model", "vocab.txt",
          "vocab.json"}) {
      if (exists(name)) found = absl::StrCat("it is missing; ", std::string(name), " is there");
      if (exists(name)) break;
    }
    return absl::NotFoundError(absl::StrCat(
        folder, "/tokenizer.json: ", found, ", and no other file makes a ", std::string(known.name),
        " here. Make tokenizer.json: python3 -c 'from transformers import "
        "AutoTokenizer as A; A.from_pretrained(\"",
        folder, "\").save_pretrained(\"", folder, "\")'"));
  }
  absl::Status status = read(known.vocabulary, &files->vocabulary);
  if (status.ok() && known.merges) status = read("merges.txt", &files->merges);
  return status;
}

// added_tokens.json: ids by token.
absl::Status AddTokens(const std::string& path, nlohmann::json* settings) {
  if (!NameExists(path)) return absl::OkStatus();
  absl::StatusOr<nlohmann::json> added = hf::ReadJson(path);
  if (!added.ok()) return added.status();
  const auto is_id = [](const nlohmann::json& id) {
    return id.is_number_unsigned() && id.get<uint64_t>() <= UINT32_MAX;
  };
  if (!added->is_object() || !std::all_of(added->begin(), added->end(), is_id)) {
    return absl::InvalidArgumentError(path + ": must be an object of ids by token");
  }
  (*settings)["added_tokens"] = *std::move(added);
  return absl::OkStatus();
}

// The length that tokenizer.json itself cuts texts to.
absl::Status ReadTruncation(const std::string& folder, const std::string& text,
                            LoadedTokenizer* loaded) {
  const std::string path = folder + "/tokenizer.json";
  absl::StatusOr<nlohmann::json> json = hf::ParseJson(text, path);
  if (!json.ok()) return json.status();
  if (!json->is_object() || !json->contains("truncation") || !(*json)["truncation"].is_object()) {
    return absl::OkStatus();
  }
  const nlohmann::json& length = (*json)["truncation"]["max_length"];
  if (!length.is_number_unsigned() || length.get<uint64_t>() < 1) {
    return absl::InvalidArgumentError(path + ": truncation.max_length: must be a positive integer");
  }
  loaded->max_tokens = static_cast<int64_t>(std::min<uint64_t>(length.get<uint64_t>(), INT32_MAX));
  return absl::OkStatus();
}

// The class that transformers' AutoTokenizer takes, without "Fast": "TokenizersBackend" takes
// tokenizer.json as it is. `named`: tokenizer_config.json's tokenizer_class, else config.json's;
// may be empty. Source: transformers 5.24, models/auto/tokenization_auto.py.
std::string TokenizerClassOf(std::string_view model_type, std::string_view named) {
  const auto plain = [](std::string_view name) {
    if (name.ends_with("Fast")) name.remove_suffix(4);
    const std::string_view alias = Find(kAliases, name);
    return std::string(alias.empty() ? name : alias);
  };
  // These ignore the class that is named.
  if (model_type == "modernbert" || model_type == "mistral") return std::string(kWhole);
  if (model_type == "qwen2") return "Qwen2Tokenizer";
  if (!named.empty()) return plain(named);
  const std::string_view own = Find(kClassOfFamily, model_type);
  return std::string(own.empty() ? kWhole : own);
}

}  // namespace

absl::StatusOr<LoadedTokenizer> LoadTokenizer(const std::string& folder,
                                              const TokenizerContext& context) {
  const std::string path = folder + "/tokenizer_config.json";
  const auto read = [&](File file, const std::string& name) {
    if (context.alone) return absl::StatusOr<ConfigReader>({file, nlohmann::json::object(), name});
    return ReadOptional(file, name);
  };
  absl::StatusOr<ConfigReader> config = read(File::kTokenizerConfig, path);
  if (!config.ok()) return config.status();
  const std::string named = config->String("tokenizer_class", context.tokenizer_class);
  const std::string name = TokenizerClassOf(context.model_type, named);
  const TokenizerClass* known = FindClass(name);
  if (known == nullptr) {
    config->Fail("tokenizer_class",
                 absl::StrCat("\"", named,
                              "\" is not known; if tokenizer.json is complete, as when the "
                              "tokenizers library saved it, set \"PreTrainedTokenizerFast\""));
    return config->status();
  }
  LoadedTokenizer loaded;
  loaded.type_ids = known->type_ids;
  hf::TokenizerFiles files;
  if (absl::Status status = ReadFiles(folder, *known, &files); !status.ok()) return status;
  // Without tokenizer.json these keys would make the post-processor that this class lacks.
  if (!files.tokenizer.has_value() && known->name == "Qwen2Tokenizer") {
    for (const std::string_view key : {"add_bos_token", "add_eos_token"}) {
      if (config->Bool(key, false)) config->Fail(key, "needs a tokenizer.json");
    }
  }
  absl::StatusOr<ConfigReader> map =
      read(File::kSpecialTokensMap, folder + "/special_tokens_map.json");
  if (!map.ok()) return map.status();
  nlohmann::json settings = {
      {"class", name},
      {"lowercase", context.lowercase},
      {"tokenizer_config", ReadKeys(File::kTokenizerConfig, *config)},
      {"special_tokens_map", ReadKeys(File::kSpecialTokensMap, *map)},
  };
  if (!context.alone) {
    if (absl::Status s = AddTokens(folder + "/added_tokens.json", &settings); !s.ok()) return s;
  } else if (absl::Status s = ReadTruncation(folder, *files.tokenizer, &loaded); !s.ok()) {
    return s;
  }
  files.settings = settings.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  absl::StatusOr<std::unique_ptr<hf::Tokenizer>> tokenizer = hf::Tokenizer::Open(files);
  if (!tokenizer.ok()) {
    // Problems begin with their file, but for internal errors.
    const std::string problem(tokenizer.status().message());
    const std::string file = problem.starts_with("internal error") ? "tokenizer.json: " : "";
    return absl::InvalidArgumentError(absl::StrCat(folder, "/", file, problem));
  }
  loaded.tokenizer = *std::move(tokenizer);
  loaded.cut_left = loaded.tokenizer->cuts_left();
  ReadLimits(*config, &loaded);
  ReadSides(*config, &loaded);
  ReadInputNames(*config, &loaded);
  loaded.fillers = ReadFillers(*config, *map, name == kWhole);
  loaded.chat_template =
      config->Has("chat_template") || NameExists(folder + "/chat_template.jinja");
  const nlohmann::json& json = config->json();
  if (json.contains("chat_template") && json["chat_template"].is_string()) {
    loaded.chat_template_text = json["chat_template"];
  }
  for (const auto& [key, value] : json.items()) {
    const nlohmann::json token = value.is_object() ? value.value("content", value) : value;
    if (key.ends_with("_token") && token.is_string()) loaded.special_tokens[key] = token;
  }
  if (!config->status().ok()) return config->status();
  return loaded;
}

}  // namespace castor::encoder

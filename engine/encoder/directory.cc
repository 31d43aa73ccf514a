#include "engine/encoder/directory.h"

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/regular_file.h"
#include "engine/encoder/config_reader.h"
#include "engine/encoder/prompts.h"
#include "engine/hf/json.h"

namespace castor::encoder {
namespace {

constexpr int64_t kLongest = int64_t{1} << 20;  // tokens; a longer model_max_length means "none"

absl::Status Invalid(const std::string& path, std::string_view problem) {
  return absl::InvalidArgumentError(path + ": " + std::string(problem));
}

struct Module {
  std::string type;  // the last part of its Python name: "Transformer", "Pooling", ...
  std::string path;  // relative to the model directory, may be empty
};

// Whether `path` is empty or names a folder next to modules.json, and cannot lead elsewhere.
bool IsPlainFolder(const std::string& path) {
  return path.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos && path != "." &&
         path != "..";
}

absl::StatusOr<std::vector<Module>> ReadModules(const std::string& file) {
  absl::StatusOr<nlohmann::json> json = hf::ReadJson(file);
  if (!json.ok()) return json.status();
  if (!json->is_array() || json->empty()) return Invalid(file, "is not a list of modules");
  std::vector<Module> modules;
  for (const nlohmann::json& entry : *json) {
    ConfigReader reader(entry, absl::StrCat(file, "[", modules.size(), "]"));
    const std::string type = reader.String("type", "");
    Module module{.type = type.substr(type.rfind('.') + 1), .path = reader.String("path", "")};
    if (!IsPlainFolder(module.path)) reader.Fail("path", "is not a plain folder name");
    if (!reader.status().ok()) return reader.status();
    modules.push_back(std::move(module));
  }
  return modules;
}

absl::Status ReadPooling(const std::string& file, Directory* directory) {
  absl::StatusOr<ConfigReader> config = ReadConfig(file);
  if (!config.ok()) return config.status();
  struct Row {
    std::string_view key;
    Pooling pooling;
  };
  constexpr Row kModes[] = {
      {"pooling_mode_mean_tokens", Pooling::kMean},
      {"pooling_mode_cls_token", Pooling::kCls},
      {"pooling_mode_lasttoken", Pooling::kLastToken},
      {"pooling_mode_max_tokens", Pooling::kMaximum},
      {"pooling_mode_weightedmean_tokens", Pooling::kWeightedMean},
  };
  const Row* chosen = nullptr;
  for (const Row& mode : kModes) {
    if (!config->Bool(mode.key, false)) continue;
    if (chosen != nullptr) {
      config->Fail(mode.key, absl::StrCat("is a second pooling, beside ", std::string(chosen->key),
                                          "; rows of several are not put together"));
    }
    chosen = &mode;
  }
  if (config->Bool("pooling_mode_mean_sqrt_len_tokens", false)) {
    config->Fail("pooling_mode_mean_sqrt_len_tokens", "is not supported");
  }
  if (chosen == nullptr) {
    config->Fail("pooling_mode_mean_tokens", "neither this nor another pooling is true");
  } else {
    directory->pooling = chosen->pooling;
  }
  directory->include_prompt = config->Bool("include_prompt", true);
  // Its weights would count from the prompt on.
  if (!directory->include_prompt && directory->pooling == Pooling::kWeightedMean) {
    config->Fail("include_prompt", "false is not supported with weighted means");
  }
  if (config->Has("word_embedding_dimension")) {
    directory->embedding_size = config->Int("word_embedding_dimension", 0, 1, kLongest);
  }
  return config->status();
}

// Reads the length limit and the prompts, and refuses what else sentence-transformers would do to a
// text.
absl::Status ReadTextSettings(const std::string& model, Directory* directory) {
  // The first is current; old versions wrote the others.
  constexpr std::array<std::string_view, 7> kNames = {
      "sentence_bert_config.json",       "sentence_roberta_config.json",
      "sentence_distilbert_config.json", "sentence_camembert_config.json",
      "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
      "sentence_xlnet_config.json"};
  for (const std::string_view name : kNames) {
    const std::string file = directory->transformer + "/" + std::string(name);
    if (!NameExists(file)) continue;
    absl::StatusOr<ConfigReader> config = ReadConfig(file);
    if (!config.ok()) return config.status();
    if (config->Has("max_seq_length")) {
      directory->max_tokens = config->Int("max_seq_length", 0, 1, kLongest);
    }
    if (config->Bool("do_lower_case", false)) {
      config->Fail("do_lower_case", "is not supported: lowercasing belongs in tokenizer.json");
    }
    if (!config->status().ok()) return config->status();
    break;
  }

  const std::string tokenizer = directory->transformer + "/tokenizer_config.json";
  if (!directory->max_tokens.has_value() && NameExists(tokenizer)) {
    absl::StatusOr<ConfigReader> config = ReadConfig(tokenizer);
    if (!config.ok()) return config.status();
    // Often 1e30, which stands for "none".
    const double limit = config->Double("model_max_length", 0);
    if (!config->status().ok()) return config->status();
    if (limit >= 1 && limit <= static_cast<double>(kLongest)) {
      directory->max_tokens = static_cast<int64_t>(limit);
    }
  }

  absl::StatusOr<Prompts> prompts = ReadPrompts(model + "/config_sentence_transformers.json");
  if (prompts.ok()) directory->prompts = *std::move(prompts);
  return prompts.status();
}

absl::Status ReadSplade(const std::string& file, Directory* directory) {
  absl::StatusOr<ConfigReader> config = ReadConfig(file);
  if (!config.ok()) return config.status();
  const std::string strategy = config->String("pooling_strategy", "max");
  if (strategy != "max" && strategy != "sum") {
    config->Fail("pooling_strategy", "\"" + strategy + "\" is not known; \"max\", \"sum\" are");
  }
  const std::string activation = config->String("activation_function", "relu");
  if (activation != "relu" && activation != "log1p_relu") {
    config->Fail("activation_function",
                 "\"" + activation + "\" is not known; \"relu\", \"log1p_relu\" are");
  }
  for (const std::string& key : config->Names()) {
    // The chunks in which sentence-transformers computes change nothing.
    if (key != "pooling_strategy" && key != "activation_function" && key != "chunk_size" &&
        key != "word_embedding_dimension") {
      config->Fail(key, "is not known");
    }
  }
  if (config->Has("word_embedding_dimension")) {
    directory->embedding_size = config->Int("word_embedding_dimension", 0, 1, kLongest);
  }
  directory->splade = SpladeModule{.sum = strategy == "sum", .twice = activation == "log1p_relu"};
  return config->status();
}

// Takes one module behind the transformer. False if it has no place there.
absl::StatusOr<bool> ReadModule(const std::string& folder, const Module& module,
                                Directory* directory) {
  const bool first = !directory->pools && directory->dense.empty() && !directory->normalize;
  if (module.type == "Pooling" && first) {
    directory->pools = true;
    absl::Status status = ReadPooling(folder + "/config.json", directory);
    if (!status.ok()) return status;
    return true;
  }
  if (module.type == "Dense" && !directory->normalize) {
    absl::StatusOr<DenseModule> dense =
        ReadDense(folder, directory->pools ? "sentence_embedding" : "token_embeddings");
    if (!dense.ok()) return dense.status();
    directory->dense.push_back(*std::move(dense));
    return true;
  }
  if (module.type == "Normalize" && !first && !directory->normalize) {
    directory->normalize = true;
    return true;
  }
  return false;
}

// A masked language model, then SpladePooling.
absl::Status ReadSparsePipeline(const std::string& path, const std::vector<Module>& modules,
                                Directory* directory) {
  if (modules.size() != 2 || modules[1].type != "SpladePooling") {
    return Invalid(path + "/modules.json",
                   "behind an MLMTransformer, one SpladePooling is supported and nothing else");
  }
  return ReadSplade(path + "/" + modules[1].path + "/config.json", directory);
}

// Goes through modules.json: Transformer, then at most one Pooling, any number of Dense, at most
// one Normalize; or MLMTransformer, SpladePooling.
absl::Status ReadPipeline(const std::string& path, Directory* directory) {
  const std::string file = path + "/modules.json";
  absl::StatusOr<std::vector<Module>> modules = ReadModules(file);
  if (!modules.ok()) return modules.status();
  const bool masked = modules->front().type == "MLMTransformer";
  if (modules->front().type != "Transformer" && !masked) {
    return Invalid(file, absl::StrCat("the first module is \"", modules->front().type,
                                      "\", not a Transformer or an MLMTransformer"));
  }
  if (!modules->front().path.empty()) {
    directory->transformer = path + "/" + modules->front().path;
  }
  if (masked) return ReadSparsePipeline(path, *modules, directory);
  for (size_t i = 1; i < modules->size(); ++i) {
    const Module& module = (*modules)[i];
    const absl::StatusOr<bool> taken = ReadModule(path + "/" + module.path, module, directory);
    if (!taken.ok()) return taken.status();
    if (!*taken) {
      return Invalid(file, absl::StrCat("module ", i, " (\"", module.type, "\", ", module.path,
                                        ") is not supported here; known are Transformer, Pooling, "
                                        "Dense, Normalize, in this order"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Directory> ReadDirectory(const std::string& path) {
  std::error_code error;  // such as a folder that may not be read
  if (!std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(path + ": is not a directory" +
                               (error ? " (" + error.message() + ")" : ""));
  }
  Directory directory;
  directory.transformer = path;
  directory.has_modules =
      NameExists(path + "/modules.json") || NameExists(path + "/1_Pooling/config.json");
  if (NameExists(path + "/modules.json")) {
    if (absl::Status status = ReadPipeline(path, &directory); !status.ok()) return status;
  } else if (directory.has_modules) {
    directory.pools = true;
    absl::Status status = ReadPooling(path + "/1_Pooling/config.json", &directory);
    if (!status.ok()) return status;
  }
  if (absl::Status status = ReadTextSettings(path, &directory); !status.ok()) return status;
  return directory;
}

}  // namespace castor::encoder

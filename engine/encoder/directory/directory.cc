#include "engine/encoder/directory/directory.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/regular_file.h"
#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/directory/late_interaction.h"
#include "engine/encoder/directory/router.h"
#include "engine/encoder/heads/classifier.h"
#include "engine/encoder/text/prompts.h"
#include "engine/hf/json.h"

namespace castor::encoder {
namespace {

absl::Status Invalid(const std::string& path, std::string_view problem) {
  return absl::InvalidArgumentError(path + ": " + std::string(problem));
}

// What jina-embeddings-v3 and -v5 call their own modules.
constexpr std::string_view kCustomTransformer = "custom_st.Transformer";

absl::StatusOr<std::vector<Module>> ReadModules(const std::string& file) {
  absl::StatusOr<nlohmann::json> json = hf::ReadJson(file);
  if (!json.ok()) return json.status();
  if (!json->is_array() || json->empty()) return Invalid(file, "is not a list of modules");
  std::vector<Module> modules;
  std::vector<std::string> names;
  for (const nlohmann::json& entry : *json) {
    ConfigReader reader(File::kModules, entry, absl::StrCat(file, "[", modules.size(), "]"));
    for (const char* key : {"type", "name", "path"}) {
      if (!reader.Has(key)) reader.Fail(key, "is missing");
    }
    const std::string type = reader.String("type", "");
    const bool custom = modules.empty() && type == kCustomTransformer;
    if (!type.starts_with("sentence_transformers.") && !type.starts_with("pylate.") && !custom) {
      reader.Fail("type", "\"" + type + "\" is custom code, which is not run here");
    }
    Module module{.type = type.substr(type.rfind('.') + 1),
                  .path = reader.String("path", ""),
                  .custom = custom};
    if (!IsPlainFolder(module.path)) reader.Fail("path", "is not a plain folder name");
    const std::string name = reader.String("name", "");
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      reader.Fail("name", "\"" + name + "\" is the name of another module as well");
    }
    if (!reader.status().ok()) return reader.status();
    names.push_back(name);
    modules.push_back(std::move(module));
  }
  return modules;
}

// ---- Pooling

struct PoolingMode {
  std::string_view name;  // since sentence-transformers 5.4
  std::string_view flag;  // before that
  Pooling pooling;
};
// In the order in which flags concatenate them.
constexpr PoolingMode kModes[] = {
    {"cls", "pooling_mode_cls_token", Pooling::kCls},
    {"max", "pooling_mode_max_tokens", Pooling::kMaximum},
    {"mean", "pooling_mode_mean_tokens", Pooling::kMean},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::kMeanSqrtLength},
    {"weightedmean", "pooling_mode_weightedmean_tokens", Pooling::kWeightedMean},
    {"lasttoken", "pooling_mode_lasttoken", Pooling::kLastToken},
};

std::vector<Pooling> ReadModes(ConfigReader& config) {
  constexpr std::string_view kKey = "pooling_mode";
  std::vector<Pooling> poolings;
  if (!config.Has(kKey)) {
    if (config.IsNull(kKey)) config.Fail(kKey, "must be a string or a list of strings");
    for (const PoolingMode& mode : kModes) {
      if (config.Bool(mode.flag, false)) poolings.push_back(mode.pooling);
    }
    if (poolings.empty()) poolings.push_back(Pooling::kMean);
    return poolings;
  }
  std::vector<std::string> names;
  if (config.json()[std::string(kKey)].is_array()) {
    names = config.Strings(kKey);
  } else {
    names.push_back(config.String(kKey, ""));
  }
  if (names.empty()) config.Fail(kKey, "names no pooling");
  for (const std::string& name : names) {
    const auto* const found = std::find_if(std::begin(kModes), std::end(kModes),
                                           [&](const PoolingMode& m) { return m.name == name; });
    if (found != std::end(kModes)) {
      poolings.push_back(found->pooling);
    } else {
      config.Fail(kKey, "\"" + name + "\" is not known");
    }
  }
  constexpr size_t kMost = 16;  // there are six poolings; more names would only repeat them
  if (poolings.size() > kMost) config.Fail(kKey, absl::StrCat("names more than ", kMost));
  return poolings;
}

absl::Status ReadPooling(const std::string& file, Directory* directory) {
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kPooling, file);
  if (!config.ok()) return config.status();
  directory->pools = true;
  directory->poolings = ReadModes(*config);
  directory->include_prompt = config->Bool("include_prompt", true);
  // Weights count from the sequence's start, and a prompt's tokens are removed after that.
  if (!directory->include_prompt &&
      std::find(directory->poolings.begin(), directory->poolings.end(), Pooling::kWeightedMean) !=
          directory->poolings.end()) {
    config->Fail("include_prompt", "false is not supported with weighted means");
  }
  // The library requires this key, and only reports it.
  if (!config->Has("embedding_dimension") && !config->Has("word_embedding_dimension")) {
    config->Fail("embedding_dimension", "is missing");
  }
  return config->status();
}

absl::Status ReadSplade(const std::string& file, Directory* directory) {
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kSplade, file);
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
  directory->splade = SpladeConfig{.sum = strategy == "sum", .twice = activation == "log1p_relu"};
  return config->status();
}

absl::Status ReadLogitScore(const std::string& file, Directory* directory) {
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kLogitScore, file);
  if (!config.ok()) return config.status();
  if (!config->Has("true_token_id")) config->Fail("true_token_id", "is missing");
  LogitScoreModule module{.yes = config->Int("true_token_id", 0, 0, kMaxSize)};
  if (config->Has("false_token_id")) module.no = config->Int("false_token_id", 0, 0, kMaxSize);
  const std::string input = config->String("module_input_name", "causal_logits");
  if (input != "causal_logits") {
    config->Fail("module_input_name", "\"" + input + "\" is not supported; \"causal_logits\" is");
  }
  directory->logit_score = module;
  return config->status();
}

absl::Status ReadRerankTokens(const std::string& file, Directory* directory) {
  if (!NameExists(file)) return absl::OkStatus();
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kRerank, file);
  if (!config.ok()) return config.status();
  if (!config->Has("true_token")) config->Fail("true_token", "is missing");
  directory->tokens_of_answers = {config->String("true_token", ""),
                                  config->String("false_token", "")};
  return config->status();
}

// ---- the transformer

struct TaskRow {
  std::string_view name;  // sentence_bert_config.json's
  Task task;
  std::string_view output;         // the model's
  std::string_view module_output;  // the module's name for it
};
constexpr TaskRow kTasks[] = {
    {"feature-extraction", Task::kFeatures, "last_hidden_state", "token_embeddings"},
    {"sequence-classification", Task::kSequenceClassification, "logits", "scores"},
    {"fill-mask", Task::kFillMask, "logits", "token_embeddings"},
    {"text-generation", Task::kTextGeneration, "logits", "causal_logits"},
};

// Only texts are served, and their output must be the task's own. Pairs become messages where the
// file has these.
void ReadModality(ConfigReader& config, const TaskRow& task, Directory* directory) {
  for (const std::string& modality : config.Keys("modality_config")) {
    if (modality != "text" && modality != "message") continue;  // other inputs are not served
    const std::string key = "modality_config." + modality;
    if (modality == "message") {
      directory->message_format = config.String(key + ".format", "");
      if (directory->message_format != "flat" && directory->message_format != "structured") {
        config.Fail(key + ".format", "must be \"flat\" or \"structured\"");
      }
      if (task.task == Task::kFeatures || task.task == Task::kFillMask) {
        config.Fail(key, "sends texts through a chat template, which only rerankers may do");
      }
    }
    const std::string method = config.String(key + ".method", "");
    const std::string output = config.String(key + ".method_output_name", "");
    if (method != "forward" || output != task.output) {
      config.Fail(key, absl::StrCat("must be the method \"forward\" with the output \"",
                                    std::string(task.output), "\""));
    }
  }
  // Without a modality_config the library ignores the output's name.
  if (!config.Has("modality_config")) return;
  if (!config.Has("modality_config.text")) config.Fail("modality_config.text", "is missing");
  if (config.String("module_output_name", "") != task.module_output) {
    config.Fail("module_output_name",
                absl::StrCat("must be \"", std::string(task.module_output), "\""));
  }
}

// Reads sentence_bert_config.json, or the file that old versions wrote instead.
absl::Status ReadTransformer(bool masked, Directory* directory) {
  constexpr std::string_view kNames[] = {
      "sentence_bert_config.json",       "sentence_roberta_config.json",
      "sentence_distilbert_config.json", "sentence_camembert_config.json",
      "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
      "sentence_xlnet_config.json"};
  if (masked) directory->task = Task::kFillMask;
  for (const std::string_view name : kNames) {
    const std::string file = directory->transformer + "/" + std::string(name);
    if (!NameExists(file)) continue;
    absl::StatusOr<ConfigReader> config = ReadConfig(File::kTransformer, file);
    if (!config.ok()) return config.status();
    if (config->json().empty()) continue;  // the library skips it too
    if (config->Has("max_seq_length")) {
      directory->max_tokens = ReadSize(*config, "max_seq_length", 1);
    }
    directory->lowercase = config->Bool("do_lower_case", false);
    ReadQueriesAndDocuments(*config, directory);
    const std::string task =
        config->String("transformer_task", masked ? "fill-mask" : "feature-extraction");
    const auto* const row = std::find_if(std::begin(kTasks), std::end(kTasks),
                                         [&](const TaskRow& row) { return row.name == task; });
    if (row == std::end(kTasks)) {
      config->Fail("transformer_task", "\"" + task + "\" is not supported");
      return config->status();
    }
    directory->task = row->task;
    ReadModality(*config, *row, directory);
    return config->status();
  }
  return absl::OkStatus();
}

// ---- the modules that follow it

// Checks that a module reads and writes the feature of this name.
absl::Status CheckFeature(const std::string& folder, std::string_view feature) {
  const std::string file = folder + "/config.json";
  if (!NameExists(file)) {
    if (feature == "sentence_embedding") return absl::OkStatus();
    return Invalid(
        file, "module_input_name: must not be missing, as the default is \"sentence_embedding\"");
  }
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kNormalize, file);
  if (!config.ok()) return config.status();
  const std::string input = config->String("module_input_name", "sentence_embedding");
  if (input != feature) {
    config->Fail("module_input_name", absl::StrCat("\"", input, "\" is not supported here; \"",
                                                   std::string(feature), "\" is"));
  }
  if (config->String("module_output_name", input) != input) {
    config->Fail("module_output_name", "must be module_input_name");
  }
  return config->status();
}

// Takes one module after the transformer of an embedding model. False if it has no place there.
absl::StatusOr<bool> AddModule(const std::string& folder, const Module& module, bool colbert,
                               Directory* directory) {
  const bool first = !directory->pools && directory->dense.empty() && !directory->normalize;
  const std::string_view feature = directory->pools ? "sentence_embedding" : "token_embeddings";
  if (module.type == "Pooling" && first) {
    absl::Status status = ReadPooling(folder + "/config.json", directory);
    if (!status.ok()) return status;
    return true;
  }
  if (module.type == "Dense" && !directory->normalize) {
    absl::StatusOr<DenseModule> dense = ReadDense(folder, std::string(feature), colbert);
    if (!dense.ok()) return dense.status();
    directory->dense.push_back(*std::move(dense));
    return true;
  }
  if (module.type == "LayerNorm" && directory->pools && !directory->normalize) {
    absl::StatusOr<DenseModule> norm = ReadLayerNorm(folder);
    if (!norm.ok()) return norm.status();
    directory->dense.push_back(*std::move(norm));
    return true;
  }
  if (module.type == "Normalize" && !first && !directory->normalize) {
    absl::Status status = CheckFeature(folder, feature);
    if (!status.ok()) return status;
    directory->normalize = true;
    return true;
  }
  // These change no answer, unless their keys do.
  const bool drops = module.type == "Dropout";
  if (!drops && (module.type != "MultiVectorMask" || directory->pools)) return false;
  const std::string file = folder + "/config.json";
  directory->late_interaction.masks |= !drops;
  if (!NameExists(file)) return true;
  absl::StatusOr<ConfigReader> config =
      ReadConfig(drops ? File::kDropout : File::kMultiVectorMask, file);
  if (!config.ok()) return config.status();
  if (drops) return true;
  ReadMask(*config, directory);
  if (!config->status().ok()) return config->status();
  return true;
}

absl::Status ModuleNotSupported(const std::string& file, size_t index, const Module& module,
                                std::string_view known) {
  return Invalid(file, absl::StrCat("module ", index, " (\"", module.type, "\", ", module.path,
                                    ") is not supported here; ", std::string(known)));
}

// Reads modules.json: Transformer, then at most one Pooling, any number of Dense, at most one
// Normalize; or a masked language model and SpladePooling; or a language model and LogitScore; or a
// classifier alone; or a Router.
absl::Status ReadPipeline(std::string path, const std::string& model_type, Directory* directory) {
  std::string file = path + "/modules.json";
  absl::StatusOr<std::vector<Module>> modules = ReadModules(file);
  if (!modules.ok()) return modules.status();
  if (modules->front().type == "Router") {
    const std::string& folder = modules->front().path;
    if (modules->size() > 1 || model_type != "SparseEncoder") {
      return Invalid(file,
                     "a Router is supported as the only module of a SparseEncoder (model_type in "
                     "config_sentence_transformers.json)");
    }
    if (!folder.empty()) path += "/" + folder;
    modules = ReadRouter(path, directory);
    if (!modules.ok()) return modules.status();
    directory->transformer = path;
    file = path + "/router_config.json";
  }
  const Module& transformer = modules->front();
  const bool masked = transformer.type == "MLMTransformer";
  directory->lookup = transformer.type == "StaticEmbedding";
  directory->custom = transformer.custom;
  if (transformer.type != "Transformer" && !masked && !directory->lookup) {
    return Invalid(file,
                   absl::StrCat("the first module is \"", transformer.type,
                                "\", not a Transformer, an MLMTransformer or a StaticEmbedding"));
  }
  if (!transformer.path.empty()) directory->transformer = path + "/" + transformer.path;
  if (directory->lookup) {
    directory->pools = true;
    directory->poolings = {Pooling::kMean};
  } else if (absl::Status status = ReadTransformer(masked, directory); !status.ok()) {
    return status;
  }

  const bool cross_encoder = model_type == "CrossEncoder";
  const bool scores =
      directory->task == Task::kSequenceClassification || directory->task == Task::kTextGeneration;
  if (cross_encoder != scores ||
      (model_type == "SparseEncoder") != (directory->task == Task::kFillMask)) {
    return Invalid(path + "/config_sentence_transformers.json",
                   "model_type: \"" + model_type + "\" contradicts the transformer_task of " +
                       directory->transformer + "/sentence_bert_config.json and modules.json");
  }
  if (directory->task == Task::kTextGeneration) {
    if (modules->size() != 2 || (*modules)[1].type != "LogitScore") {
      return Invalid(file, "a language model must be followed by one LogitScore and nothing else");
    }
    return ReadLogitScore(path + "/" + (*modules)[1].path + "/config.json", directory);
  }
  if (cross_encoder) {
    if (modules->size() == 1) return absl::OkStatus();
    return ModuleNotSupported(file, 1, (*modules)[1], "a CrossEncoder is one Transformer");
  }
  if (directory->task == Task::kFillMask) {
    if (modules->size() != 2 || (*modules)[1].type != "SpladePooling") {
      return Invalid(file,
                     "a masked language model must be followed by one SpladePooling and nothing "
                     "else");
    }
    return ReadSplade(path + "/" + (*modules)[1].path + "/config.json", directory);
  }
  const bool colbert = model_type == "ColBERT" || model_type == "MultiVectorEncoder";
  if (transformer.custom && modules->size() == 1) {  // v5's pools and normalises by itself
    directory->pools = directory->normalize = true;
    directory->poolings = {Pooling::kLastToken};
  }
  for (size_t i = 1; i < modules->size(); ++i) {
    const Module& module = (*modules)[i];
    const absl::StatusOr<bool> taken =
        AddModule(path + "/" + module.path, module, colbert, directory);
    if (!taken.ok()) return taken.status();
    if (!*taken) {
      return ModuleNotSupported(
          file, i, module,
          "Transformer, Pooling (or a StaticEmbedding), Dense, LayerNorm, Dropout and Normalize "
          "are, in this order");
    }
  }
  directory->tokens = !directory->pools;
  if (directory->tokens && !colbert) {
    return Invalid(file,
                   "has no Pooling, which a SentenceTransformer needs; for token rows, set the "
                   "model_type \"MultiVectorEncoder\" in config_sentence_transformers.json");
  }
  // PyLate's files do not list this module.
  if (model_type == "ColBERT") directory->normalize = true;
  if (directory->late_interaction.expansion.has_value() && !directory->late_interaction.masks) {
    return Invalid(file, "has no MultiVectorMask, which the query_expansion needs");
  }
  return absl::OkStatus();
}

constexpr std::string_view kModelTypes[] = {"SentenceTransformer", "CrossEncoder", "SparseEncoder",
                                            "MultiVectorEncoder", "ColBERT"};

// Reads config_sentence_transformers.json, and the model type from it.
absl::Status ReadModelConfig(const std::string& file, std::string* model_type,
                             Directory* directory) {
  *model_type = kModelTypes[0];
  if (!NameExists(file)) return absl::OkStatus();
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kSentenceTransformers, file);
  if (!config.ok()) return config.status();
  *model_type = config->String("model_type", kModelTypes[0]);
  if (std::find(std::begin(kModelTypes), std::end(kModelTypes), *model_type) ==
      std::end(kModelTypes)) {
    config->Fail("model_type", "\"" + *model_type + "\" is not known");
  }
  if (config->IsNull("model_type")) config->Fail("model_type", "must not be null");
  if (*model_type == "ColBERT" || *model_type == "MultiVectorEncoder") {
    ReadMultiVector(*config, *model_type == "ColBERT", directory);
  }
  directory->activation = config->String("activation_fn", "");
  // The library takes its default for an activation that is not torch's and not trusted.
  if (directory->activation.starts_with("torch.") && !IsServedActivation(directory->activation)) {
    config->Fail("activation_fn", "\"" + directory->activation +
                                      "\" is not supported; torch.nn's Sigmoid and Identity are");
  }
  if (config->Has("truncate_dim")) directory->dimensions = ReadSize(*config, "truncate_dim", 1);
  if (!config->IsNull("similarity_fn_name")) {
    directory->similarity = config->String("similarity_fn_name", "");
  }
  directory->prompts = ReadPrompts(*config);
  return config->status();
}

}  // namespace

absl::StatusOr<Directory> ReadDirectory(const std::string& path) {
  std::error_code error;  // e.g. the folder may not be read
  if (!std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(path + ": is not a directory" +
                               (error ? " (" + error.message() + ")" : ""));
  }
  Directory directory;
  directory.transformer = path;
  directory.has_modules = NameExists(path + "/modules.json");
  absl::Status status = ReadRerankTokens(path + "/castor_rerank.json", &directory);
  if (!status.ok()) return status;
  // Without modules.json, sentence-transformers reads no file of its own.
  if (!directory.has_modules) return directory;
  std::string model_type;
  status = ReadModelConfig(path + "/config_sentence_transformers.json", &model_type, &directory);
  if (status.ok()) status = ReadPipeline(path, model_type, &directory);
  if (!status.ok()) return status;
  return directory;
}

}  // namespace castor::encoder

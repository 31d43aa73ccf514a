#include "engine/encoder/directory/load.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/attention/scalar_type.h"
#include "engine/base/regular_file.h"
#include "engine/encoder/directory/adapters.h"
#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/directory/directory.h"
#include "engine/encoder/directory/late_interaction.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/families/static_embedding.h"
#include "engine/encoder/heads/load_head.h"
#include "engine/encoder/heads/splade.h"
#include "engine/encoder/layers/linear.h"
#include "engine/encoder/network/int8_fidelity.h"
#include "engine/encoder/text/chat_template.h"
#include "engine/encoder/text/pair_template.h"
#include "engine/encoder/text/prompts.h"
#include "engine/encoder/text/text_model.h"
#include "engine/encoder/text/tokenizer_files.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kEmbedders =
    "an embedding model needs a modules.json, as sentence-transformers' save() writes it";

constexpr std::string_view kRerankers =
    "; a reranker needs a chat_template.jinja such as \"...{{ messages | selectattr('role', 'eq', "
    "'query') | map(attribute='content') | first }}...\", likewise with 'document' and, for the "
    "instruction, 'system' and default('...')";

struct LoadedNetwork {
  std::string_view family;
  std::unique_ptr<hf::Tokenizer> tokenizer;
  std::optional<PairTemplate> pairs;
  Network network;
  int64_t parameters;
  int64_t weight_bytes;
  std::vector<std::string> tasks = {};
  bool needs_task = false;
};

// The text around pairs, where sentence-transformers applies a chat template; none: pairs are two
// texts. `raw`: the directory is a reranker's without modules.json. A language model's template
// that does not apply is an error, as it was left out by hand.
absl::StatusOr<std::optional<PairTemplate>> LoadPairTemplate(const Directory& directory, bool raw,
                                                             const LoadedTokenizer& tokenizer) {
  std::string file = directory.transformer + "/tokenizer_config.json: chat_template";
  const auto fail = [&](std::string_view problem) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": ", std::string(problem), std::string(kRerankers)));
  };
  const bool generates = directory.task == Task::kTextGeneration;
  const bool applies = raw || !directory.message_format.empty();
  if (!applies && !(generates && tokenizer.chat_template)) return std::nullopt;
  if (!applies) {
    return fail(
        "does not apply, as sentence_bert_config.json's modality_config has no \"message\"");
  }
  if (!tokenizer.chat_template) return fail("is missing, and so is chat_template.jinja");
  std::string text = tokenizer.chat_template_text;
  if (const std::string own = directory.transformer + "/chat_template.jinja"; NameExists(own)) {
    absl::StatusOr<std::string> read = ReadRegularFile(file = own, 1 << 20);
    if (!read.ok()) return read.status();
    text = *std::move(read);
  }
  ChatContext context{.structured = directory.message_format == "structured",
                      .variables = tokenizer.special_tokens};
  const absl::StatusOr<std::string> plain = RenderChatTemplate(text, context);
  context.instruction = true;
  const absl::StatusOr<std::string> instructed = RenderChatTemplate(text, context);
  if (!plain.ok()) return fail(std::string(plain.status().message()));
  if (!instructed.ok()) return fail(std::string(instructed.status().message()));
  auto pairs = PairTemplate::Make(*plain, *instructed, *tokenizer.tokenizer);
  if (!pairs.ok()) return fail(std::string(pairs.status().message()));
  return *std::move(pairs);
}

absl::StatusOr<LogitScoreModule> FindAnswers(const RerankTokens& tokens,
                                             const hf::Tokenizer& tokenizer) {
  std::vector<int64_t> ids, type_ids;
  for (const std::string& token : {tokens.yes, tokens.no}) {
    const size_t before = ids.size();
    const hf::EncodeOptions options{.add_special_tokens = false};
    const auto cut = tokenizer.Encode(token, std::nullopt, options, &ids, &type_ids);
    if (!cut.ok()) return cut.status();
    if (ids.size() == before + 1 || (before == 1 && token.empty())) continue;
    return absl::InvalidArgumentError("castor_rerank.json: \"" + token + "\" is not one token");
  }
  return LogitScoreModule{ids[0], ids.size() > 1 ? std::optional(ids[1]) : std::nullopt};
}

// Builds the network and its tokenizer: the family reads body and rules, the directory sets limits,
// and both decide the head.
absl::StatusOr<LoadedNetwork> LoadNetwork(Directory& directory, const ModelSource& source,
                                          at::ScalarType dtype, at::Device device,
                                          AttentionFn attention) {
  const std::string& folder = directory.transformer;
  if (NameExists(folder + "/adapter_config.json")) {
    return absl::InvalidArgumentError(
        folder +
        "/adapter_config.json: is an adapter, not a model: serve its base model with --adapter "
        "MODEL/TASK=DIR, or merge the adapter into the weights (PEFT's merge_and_unload) and save "
        "the model");
  }
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kConfig, folder + "/config.json");
  if (!config.ok()) return config.status();
  const std::string model_type = config->String("model_type", "");
  const Family* family = FindFamily(model_type);
  if (model_type == "model2vec") {
    config->Fail("model_type",
                 "\"model2vec\" without a modules.json is not served, since model2vec leaves out "
                 "unknown tokens. Save it with modules: python3 -c 'from sentence_transformers "
                 "import SentenceTransformer as S, models as m; S(modules=[m.StaticEmbedding."
                 "from_model2vec(\"" +
                     folder + "\"), m.Normalize()]).save(\"" + folder + "\")'");
  } else if (family == nullptr) {
    config->Fail("model_type",
                 model_type.empty()
                     ? "is missing"
                     : "\"" + model_type + "\" is not known; known are " + KnownFamilies());
  }
  if (!config->status().ok()) return config->status();
  // Such a model is causal, unless the file says otherwise. Its users expect text or an answer, and
  // would get embeddings.
  const std::vector<std::string> classes = config->Strings("architectures");
  const std::string name = classes.empty() || directory.has_modules ? "" : classes.front();
  const bool generates = name.ends_with("ForCausalLM") && config->Bool("is_causal", true);
  if (generates && !directory.tokens_of_answers.has_value()) {
    config->Fail(
        "architectures",
        absl::StrCat("\"", name, "\" without a modules.json is a text generator, which is ",
                     "not served, or a reranker; ", std::string(kEmbedders),
                     std::string(kRerankers), ", and a castor_rerank.json such as ",
                     "{\"true_token\": \"yes\", \"false_token\": \"no\"}"));
  } else if (!generates && directory.tokens_of_answers.has_value()) {
    return absl::InvalidArgumentError(
        folder + "/castor_rerank.json: is only for a ...ForCausalLM without modules.json");
  }
  if (generates) directory.task = Task::kTextGeneration;
  if (!config->status().ok()) return config->status();
  if (!directory.has_modules && !classes.empty() && classes.front() == "HF_ColBERT") {
    if (absl::Status status = ReadStanford(&directory); !status.ok()) return status;
  }
  absl::StatusOr<LoadedTokenizer> tokenizer =
      LoadTokenizer(folder, {.model_type = model_type,
                             .tokenizer_class = config->String("tokenizer_class", ""),
                             .lowercase = directory.lowercase});
  if (!config->status().ok()) return config->status();
  if (!tokenizer.ok()) return tokenizer.status();
  const bool classifies = name.ends_with("ForSequenceClassification") && tokenizer->chat_template;
  absl::StatusOr<std::optional<PairTemplate>> pairs =
      LoadPairTemplate(directory, generates || classifies, *tokenizer);
  if (!pairs.ok()) return pairs.status();
  if (generates) {
    absl::StatusOr<LogitScoreModule> found =
        FindAnswers(*directory.tokens_of_answers, *tokenizer->tokenizer);
    if (!found.ok()) return found.status();
    directory.logit_score = *found;
  }
  if (tokenizer->chat_template && !directory.has_modules && !pairs->has_value()) {
    return absl::InvalidArgumentError(
        folder + "/tokenizer_config.json: chat_template: is not supported, and without a " +
        "modules.json texts would need it; " + std::string(kEmbedders));
  }
  absl::StatusOr<std::unique_ptr<hf::Safetensors>> files = hf::Safetensors::OpenModel(folder);
  if (!files.ok()) return files.status();
  AdapterReader adapters(dtype, device);
  adapters.AddOwn(*config, **files, folder);
  const bool own = !adapters.tasks().empty();
  for (const auto& [task, path] : source.adapters) adapters.AddPeft(task, path);
  if (directory.custom && !own && config->status().ok()) {
    return absl::InvalidArgumentError(
        source.directory + "/modules.json[0]: type: \"custom_st.Transformer\" is custom code, " +
        "which is not run here, and the model is not jina-embeddings-v3 or -v5");
  }
  WeightReader weights(**files, folder, dtype, device, source.int8);
  if (!adapters.tasks().empty()) weights.set_adapters(&adapters);
  absl::StatusOr<FamilyModel> model = family->build(*config, weights);
  if (!model.ok()) return model.status();
  if (!model->body->info().causal)
    RefuseTrue(*config, {"is_causal"}, "this family has no causal attention");
  if (!config->status().ok()) return config->status();
  InputRules& rules = model->rules;
  // sentence-transformers' limit takes precedence over the tokenizer's.
  const auto limit =
      directory.max_tokens.has_value() ? directory.max_tokens : tokenizer->max_tokens;
  rules.max_tokens = std::min(rules.max_tokens, limit.value_or(rules.max_tokens));
  rules.cut_left = tokenizer->cut_left;
  rules.text_types = tokenizer->type_ids;
  if (absl::Status s =
          SetLateInteraction(directory.late_interaction, *tokenizer, model->body->info(), &rules);
      !s.ok()) {
    return s;
  }
  absl::StatusOr<LoadedHead> head =
      LoadHead(directory, *config, **files, *model, weights.prefix(), dtype, device);
  if (!head.ok()) return head.status();
  const bool pooler = !head->head->info().labels.empty();
  if (absl::Status s = adapters.Finish(pooler); !s.ok()) return s;
  if (own && !directory.has_modules) {  // jina-embeddings-v3's own code puts these before texts
    for (const auto& [task, text] : config->StringsByName("task_instructions")) {
      directory.prompts.all.push_back({.name = task, .text = text});
    }
    if (!config->status().ok()) return config->status();
  }
  return LoadedNetwork{family->model_type,
                       std::move(tokenizer->tokenizer),
                       *std::move(pairs),
                       Network(std::move(rules), std::move(model->body), std::move(head->head),
                               device, std::move(attention)),
                       weights.parameters() + head->parameters + adapters.parameters(),
                       weights.bytes() + head->weight_bytes + adapters.bytes(),
                       adapters.tasks(),
                       family->model_type == "jina_embeddings_v5"};
}

// Builds a network without layers. A StaticEmbedding's tokenizer.json is read alone.
absl::StatusOr<LoadedNetwork> LoadLookup(const Directory& directory, at::ScalarType dtype,
                                         at::Device device, AttentionFn attention) {
  const std::string& folder = directory.transformer;
  ConfigReader config(File::kConfig, nlohmann::json::object(), folder + "/config.json");
  TokenizerContext context;
  context.alone = !directory.weighs;
  absl::StatusOr<LoadedTokenizer> tokenizer = LoadTokenizer(folder, context);
  if (!tokenizer.ok()) return tokenizer.status();
  absl::StatusOr<std::unique_ptr<hf::Safetensors>> files = hf::Safetensors::OpenModel(folder);
  if (!files.ok()) return files.status();
  absl::StatusOr<StaticEmbedding> table =
      directory.weighs ? BuildTokenWeights(**files, folder, device)
                       : BuildStaticEmbedding(**files, folder, dtype, device);
  if (!table.ok()) return table.status();
  FamilyModel& model = table->model;
  model.rules.max_tokens =
      std::min(model.rules.max_tokens, tokenizer->max_tokens.value_or(model.rules.max_tokens));
  model.rules.cut_left = tokenizer->cut_left;
  absl::StatusOr<LoadedHead> head =
      directory.weighs ? LoadedHead{std::make_unique<LexicalHead>(model.rules.vocabulary)}
                       : LoadHead(directory, config, **files, model, /*prefix=*/"", dtype, device);
  if (!head.ok()) return head.status();
  const at::ScalarType type = directory.weighs ? at::kFloat : dtype;
  const int64_t bytes = table->elements * static_cast<int64_t>(c10::elementSize(type));
  return LoadedNetwork{"static_embedding",
                       std::move(tokenizer->tokenizer),
                       std::nullopt,
                       Network(std::move(model.rules), std::move(model.body), std::move(head->head),
                               device, std::move(attention)),
                       table->elements + head->parameters,
                       bytes + head->weight_bytes};
}

// An error if the parts of a directory contradict each other.
absl::Status CheckAgreement(const Directory& directory, const Network& network,
                            const hf::Tokenizer& tokenizer) {
  const InputRules& rules = network.rules();
  if (tokenizer.id_limit() > rules.vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory.transformer, "/tokenizer.json: with the tokens of tokenizer_config.json and ",
        "added_tokens.json, its highest id is ", tokenizer.id_limit() - 1,
        directory.lookup ? ", but the number of its rows is "
                         : ", but config.json has a vocab_size of ",
        rules.vocabulary));
  }
  // Tokenizers give pairs type 1, which prepare.cc drops for a model with one type.
  if (tokenizer.type_limit() > std::max<int64_t>(rules.types, 2)) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory.transformer, "/tokenizer.json: its highest type id is ",
        tokenizer.type_limit() - 1, ", but config.json has a type_vocab_size of ", rules.types));
  }
  if (rules.special_tokens &&
      rules.max_tokens <= std::max(tokenizer.added_tokens(false), tokenizer.added_tokens(true))) {
    return absl::InvalidArgumentError(absl::StrCat(directory.transformer, ": a limit of ",
                                                   rules.max_tokens,
                                                   " tokens, from config.json, "
                                                   "tokenizer_config.json or "
                                                   "sentence_bert_config.json, leaves no room "
                                                   "for text"));
  }
  return absl::OkStatus();
}

// The directory's prompts, with their tokens counted.
absl::StatusOr<Prompts> LoadPrompts(const Directory& directory, const std::string& folder,
                                    const InputRules& rules, const hf::Tokenizer& tokenizer) {
  Prompts prompts = directory.prompts;
  LimitPrompt("document", directory.document_length, &prompts);
  std::optional<int64_t> query_length = directory.query_length;
  if (const auto& expansion = directory.late_interaction.expansion; expansion.has_value()) {
    if (query_length.value_or(expansion->length) < expansion->length) {
      return absl::InvalidArgumentError(
          absl::StrCat(expansion->key, "its length exceeds query_length"));
    }
    query_length = expansion->cuts ? expansion->length : query_length.value_or(rules.max_tokens);
  }
  LimitPrompt("query", query_length, &prompts);
  for (Prompt& prompt : prompts.all) {
    if (prompt.name != kQueryPrompt || !directory.late_interaction.expansion.has_value()) continue;
    prompt.padded_to = directory.late_interaction.expansion->length;
    prompt.hides_padding = !directory.late_interaction.expansion->attends;
  }
  absl::Status status = FinishPrompts(tokenizer, rules.max_tokens, directory.include_prompt,
                                      directory.late_interaction.prefixes, &prompts);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(folder, "/config_sentence_transformers.json: ",
                                                    std::string(status.message())));
  }
  return prompts;
}

// Gathers the descriptions of a network's parts.
ModelInfo Describe(const Network& network) {
  const BodyInfo& body = network.body().info();
  const HeadInfo& head = network.head().info();
  const InputRules& rules = network.rules();
  ModelInfo info;
  info.hidden_size = body.hidden;
  info.pooled_size = head.pooled_size;
  info.token_size = head.token_size;
  info.takes_embeddings = !body.projected();
  info.layers = static_cast<int32_t>(body.layers);
  info.heads = static_cast<int32_t>(body.heads);
  info.max_tokens = rules.max_tokens;
  info.truncation_side = rules.cut_left ? Side::kLeft : Side::kRight;
  info.vocabulary_size = rules.vocabulary;
  info.type_vocabulary_size = rules.types;
  info.pooling = head.pooling;
  info.normalize = head.normalize;
  if (body.cast.has_value()) info.kernel = *body.cast;
  if (body.causal) info.kernel = Vanilla{.causal = true};
  info.kernels = body.kernels;
  info.outputs = head.outputs;
  info.labels = head.labels;
  info.token_labels = head.token_labels;
  info.lexical = head.lexical;
  return info;
}

absl::StatusOr<std::shared_ptr<TextModel>> LoadFrom(Directory& directory, const ModelSource& source,
                                                    at::Device device,
                                                    const AttentionFn& attention) {
  const at::ScalarType dtype = attention::ScalarTypeOf(source.dtype);
  absl::StatusOr<LoadedNetwork> loaded =
      directory.lookup ? LoadLookup(directory, dtype, device, attention)
                       : LoadNetwork(directory, source, dtype, device, attention);
  if (!loaded.ok()) return loaded.status();
  Network& network = loaded->network;
  const hf::Tokenizer& tokenizer = *loaded->tokenizer;
  absl::Status agreed = CheckAgreement(directory, network, tokenizer);
  if (!agreed.ok()) return agreed;
  absl::StatusOr<Prompts> prompts =
      LoadPrompts(directory, source.directory, network.rules(), tokenizer);
  if (!prompts.ok()) return prompts.status();

  ModelInfo info = Describe(network);
  info.name = source.name;
  info.family = loaded->family;
  info.dimensions = directory.dimensions;
  info.similarity = directory.similarity;
  info.prompts = *std::move(prompts);
  if (loaded->pairs.has_value()) {
    info.takes_instruction = loaded->pairs->takes_instruction();
    info.template_tokens = loaded->pairs->tokens();
  }
  info.tasks = directory.routes.empty() ? std::move(loaded->tasks) : directory.routes;
  info.needs_task = loaded->needs_task;
  info.lookup_task = directory.lookup_task;
  info.lookup_by_default = directory.lookup_by_default;
  info.dtype = directory.weighs ? DType::kFloat32 : source.dtype;
  info.parameters = loaded->parameters;
  info.weight_bytes = loaded->weight_bytes;
  return std::make_shared<TextModel>(std::move(info), std::move(loaded->tokenizer),
                                     std::move(loaded->pairs), std::move(network));
}

absl::StatusOr<std::shared_ptr<TextModel>> Load(const ModelSource& source, at::Device device,
                                                const AttentionFn& attention) {
  if (source.dtype != DType::kFloat32 && source.dtype != DType::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat("models are served as FLOAT32 or BFLOAT16, not ",
                                                   std::string(NameOf(source.dtype))));
  }
  if (source.int8 && (source.dtype != DType::kFloat32 || !Linear::HasInt8(device))) {
    return absl::InvalidArgumentError("models are served as INT8 on a CPU with AVX2 only");
  }
  absl::StatusOr<Directory> directory = ReadDirectory(source.directory);
  if (!directory.ok()) return directory.status();
  const bool looks_up = directory->lookup || directory->lookup_route != nullptr;
  if (looks_up && !source.adapters.empty()) {
    return absl::InvalidArgumentError(
        source.adapters.front().second +
        (directory->lookup ? ": a StaticEmbedding has no layers to adapt"
                           : ": adapters of a model with routes are not supported"));
  }
  absl::StatusOr<std::shared_ptr<TextModel>> model =
      LoadFrom(*directory, source, device, attention);
  if (!model.ok() || directory->lookup_route == nullptr) return model;
  Directory route = *directory->lookup_route;
  absl::StatusOr<std::shared_ptr<TextModel>> lookup = LoadFrom(route, source, device, attention);
  if (!lookup.ok()) return lookup.status();
  (*model)->set_lookup(*std::move(lookup));
  return model;
}

// Loads a model in float32, then in 8 bits, to compare their vectors. The float32 model must fit in
// memory.
absl::StatusOr<std::shared_ptr<TextModel>> LoadInt8(const ModelSource& source, at::Device device,
                                                    const AttentionFn& attention) {
  ModelSource in_floats = source;
  in_floats.int8 = false;
  absl::StatusOr<std::shared_ptr<TextModel>> model = Load(in_floats, device, attention);
  if (!model.ok()) return model;
  const absl::StatusOr<SampleVectors> exact = EncodeSampleTexts(*std::move(model));
  if (!exact.ok()) return exact.status();
  model = Load(source, device, attention);
  if (!model.ok()) return model;
  const absl::StatusOr<SampleVectors> int8 = EncodeSampleTexts(*model);
  if (!int8.ok()) return int8.status();
  (*model)->set_int8(CompareVectors(exact->values, int8->values, exact->width));
  return model;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Model>> LoadModel(const ModelSource& source, at::Device device,
                                                 AttentionFn attention) {
  try {
    const c10::InferenceMode inference;
    if (source.int8) return LoadInt8(source, device, attention);
    return Load(source, device, attention);
  } catch (const c10::Error& error) {
    return absl::InternalError(
        absl::StrCat(source.directory, ": ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(source.directory, ": ", error.what()));
  }
}

}  // namespace castor::encoder

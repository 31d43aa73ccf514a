#include "engine/encoder/heads/load_head.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/regular_file.h"
#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/heads/classifier.h"
#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/heads/splade.h"

namespace castor::encoder {
namespace {

// The parts that every head is made from.
struct Sources {
  const Directory& directory;
  ConfigReader& config;
  const hf::Safetensors& files;
  const FamilyModel& model;
  const std::string& prefix;  // the body's
  at::ScalarType dtype;
  at::Device device;

  int64_t hidden() const { return model.body->info().hidden; }

  WeightReader weights(at::ScalarType type) const {
    return {files, directory.transformer, type, device};
  }

  const HeadLayout& layout() const { return *model.heads; }

  // The checkpoint's name for a layout's name.
  std::string name(std::string_view name) const {
    return name.starts_with('~') ? prefix + std::string(name.substr(1)) : std::string(name);
  }

  HeadTransform Transform(WeightReader& weights, TransformNames names) const {
    const std::string dense = name(names.dense);
    names.dense = dense;
    const std::string_view key = layout().epsilon_key;
    const double epsilon =
        key.empty() ? layout().epsilon : ReadEpsilon(config, key, layout().epsilon);
    return TakeTransform(config, weights, names, epsilon, hidden());
  }

  // [vocabulary, hidden], or these rows of it. As in transformers 5, a stored tensor counts, and
  // ties apply only to one that is not stored.
  at::Tensor TakeDecoder(WeightReader& weights, std::string_view decoder, std::string_view words,
                         bool tied_by_default, std::span<const int64_t> rows = {}) const {
    const bool tied = config.Bool("tie_word_embeddings", tied_by_default);
    const std::string own = std::string(decoder) + ".weight";
    return weights.Take(tied && !weights.Has(own) ? name(words) + ".weight" : own,
                        {model.rules.vocabulary, hidden()}, rows);
  }
};

absl::StatusOr<LoadedHead> LoadClassifier(const Sources& from, bool tokens) {
  const ClassifierNames& names = tokens ? from.layout().tokens : from.layout().sequences;
  std::optional<std::string> cross_encoder;
  if (from.directory.has_modules) cross_encoder = from.directory.activation;
  ClassifierConfig config = ReadClassifier(from.config, tokens, names, cross_encoder);
  if (!from.config.status().ok()) return from.config.status();
  WeightReader weights = from.weights(at::kFloat);
  HeadTransform transform = from.Transform(weights, names.transform);
  if (!from.config.status().ok()) return from.config.status();
  Linear out = TakeLinear(weights, from.name(names.out), static_cast<int64_t>(config.labels.size()),
                          from.hidden(), names.bias);
  if (!weights.status().ok()) return weights.status();
  return LoadedHead{
      std::make_unique<ClassifierHead>(std::move(config), std::move(transform), std::move(out)),
      weights.parameters(), weights.bytes()};
}

// A reranker made of a language model: its logits of the next token.
absl::StatusOr<LoadedHead> LoadLogitScore(const Sources& from) {
  const LogitScoreModule& module = *from.directory.logit_score;
  const CausalLmNames& names = from.layout().causal;
  if (names.words.empty()) {
    from.config.Fail(
        "model_type",
        "modules.json has a LogitScore, but this family's language models are not served");
    return from.config.status();
  }
  if (std::max(module.yes, module.no.value_or(0)) >= from.model.rules.vocabulary) {
    from.config.Fail("vocab_size", "is too small for the tokens of modules.json's LogitScore");
  }
  ClassifierConfig config = ReadLogitScore(from.config, from.directory.activation);
  if (!from.config.status().ok()) return from.config.status();
  WeightReader weights = from.weights(at::kFloat);
  std::vector<int64_t> rows = {module.yes};
  if (module.no.has_value()) rows.push_back(*module.no);
  const at::Tensor decoder =
      from.TakeDecoder(weights, names.decoder, names.words, names.tied, rows);
  if (!from.config.status().ok()) return from.config.status();
  if (!weights.status().ok()) return weights.status();
  // A difference of logits is one product with a difference of rows.
  at::Tensor row = decoder.narrow(0, 0, 1).clone();
  if (module.no.has_value()) row.sub_(decoder.narrow(0, 1, 1));
  const int64_t elements = row.numel();
  return LoadedHead{std::make_unique<ClassifierHead>(std::move(config), HeadTransform(),
                                                     Linear(std::move(row), at::Tensor())),
                    elements, elements * static_cast<int64_t>(sizeof(float))};
}

absl::StatusOr<LoadedHead> LoadSplade(const Sources& from) {
  const MaskedLmNames& names = from.layout().masked;
  if (names.words.empty()) {
    from.config.Fail("model_type", "this family's masked language models are not served");
    return from.config.status();
  }
  WeightReader weights = from.weights(from.dtype);
  HeadTransform transform = from.Transform(weights, names.transform);
  const bool bias = names.bias_key.empty() || from.config.Bool(names.bias_key, names.by_default);
  if (!from.config.status().ok()) return from.config.status();
  const int64_t vocabulary = from.model.rules.vocabulary;
  at::Tensor decoder = from.TakeDecoder(weights, names.decoder, names.words, names.by_default);
  const std::string own_bias = std::string(names.decoder) + ".bias";
  at::Tensor offsets;
  if (bias) offsets = weights.Take(weights.Has(own_bias) ? own_bias : names.bias, {vocabulary});
  if (!weights.status().ok()) return weights.status();
  return LoadedHead{std::make_unique<SpladeHead>(*from.directory.splade, std::move(transform),
                                                 Linear(std::move(decoder), std::move(offsets))),
                    weights.parameters(), weights.bytes()};
}

// The projection that ColBERT's own checkpoints hold next to the body.
absl::StatusOr<LoadedHead> LoadColbert(const Sources& from) {
  WeightReader weights = from.weights(at::kFloat);
  const hf::StoredTensor* stored = from.files.Find("linear.weight");
  const int64_t out = stored != nullptr && !stored->shape.empty() ? stored->shape[0] : 1;
  std::vector<DenseLayer> layers;
  layers.push_back({TakeLinear(weights, "linear", out, from.hidden(), /*bias=*/false), {}});
  if (!weights.status().ok()) return weights.status();
  return LoadedHead{
      std::make_unique<PoolingHead>(std::vector<Pooling>(), from.hidden(), /*normalize=*/true,
                                    DenseStack(), DenseStack(std::move(layers))),
      weights.parameters(), weights.bytes()};
}

// BGE-M3's layers are in files next to the transformer's.
constexpr std::string_view kLexicalLayer = "sparse_linear", kTokenLayer = "colbert_linear";

// FlagEmbedding saves the layers as pickles, which are programs.
constexpr std::string_view kConvertLayers =
    ": .pt files are not read. Convert them, where torch and safetensors are installed: python3 -c "
    "\"import torch; from safetensors.torch import save_file; [save_file({k: v.contiguous() for k, "
    "v "
    "in torch.load(f + '.pt', 'cpu', weights_only=True).items()}, f + '.safetensors') for f in "
    "('sparse_linear', 'colbert_linear')]\" in ";

std::string FileOf(const Sources& from, std::string_view layer, const char* ending) {
  return absl::StrCat(from.directory.transformer, "/", std::string(layer), ending);
}

bool HasFile(const Sources& from, std::string_view layer) {
  return NameExists(FileOf(from, layer, ".safetensors")) || NameExists(FileOf(from, layer, ".pt"));
}

// `out`: the outputs that the layer must have; 0: any number.
absl::StatusOr<LoadedDense> LoadLayer(const Sources& from, std::string_view layer, int64_t out) {
  const std::string file = FileOf(from, layer, ".safetensors");
  if (!NameExists(file) && NameExists(FileOf(from, layer, ".pt"))) {
    return absl::InvalidArgumentError(absl::StrCat(
        FileOf(from, layer, ".pt"), std::string(kConvertLayers), from.directory.transformer));
  }
  if (!NameExists(file)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": missing; BGE-M3 has both sparse_linear and colbert_linear"));
  }
  const auto tensors = hf::Safetensors::OpenFile(file);
  if (!tensors.ok()) return tensors.status();
  if ((*tensors)->tensors().size() != 2) {
    return absl::InvalidArgumentError(file + ": must hold \"weight\" and \"bias\" only");
  }
  const hf::StoredTensor* stored = (*tensors)->Find("weight");
  if (out == 0 && stored != nullptr && !stored->shape.empty()) out = stored->shape[0];
  WeightReader weights(**tensors, file, at::kFloat, from.device);
  at::Tensor weight = weights.Take("weight", {out, from.hidden()});
  at::Tensor bias = weights.Take("bias", {out});
  if (!weights.status().ok()) return weights.status();
  std::vector<DenseLayer> layers;
  layers.push_back({Linear(std::move(weight), std::move(bias)), {}});
  return LoadedDense{DenseStack(std::move(layers)), weights.parameters(), weights.bytes()};
}

bool IsBgeM3(const Sources& from) {
  return HasFile(from, kLexicalLayer) || HasFile(from, kTokenLayer);
}

absl::StatusOr<LoadedHead> LoadBgeM3(const Sources& from) {
  const Directory& directory = from.directory;
  const bool plain = !directory.has_modules || (directory.pools && directory.dense.empty());
  if (!plain || directory.task != Task::kFeatures || directory.poolings.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory.transformer,
                     ": has BGE-M3's sparse_linear or colbert_linear, which need a transformer and "
                     "one pooling, without other modules"));
  }
  if (from.config.String("model_type", "") != "xlm-roberta" ||
      from.model.rules.vocabulary <= kUnweighedIds) {
    from.config.Fail("model_type", "must be xlm-roberta, since sparse_linear makes this a BGE-M3");
    return from.config.status();
  }
  auto weights = LoadLayer(from, kLexicalLayer, /*out=*/1);
  if (!weights.ok()) return weights.status();
  auto of_tokens = LoadLayer(from, kTokenLayer, /*out=*/0);
  if (!of_tokens.ok()) return of_tokens.status();
  const Pooling pooling = directory.poolings.empty() ? Pooling::kCls : directory.poolings.front();
  // FlagEmbedding normalizes if there is no modules.json.
  const bool normalize = directory.normalize || !directory.has_modules;
  return LoadedHead{
      std::make_unique<LexicalHead>(pooling, normalize, std::move(of_tokens->stack),
                                    std::move(weights->stack), from.model.rules.vocabulary),
      weights->parameters + of_tokens->parameters, weights->weight_bytes + of_tokens->weight_bytes};
}

// The head that modules.json describes.
absl::StatusOr<LoadedHead> LoadPipeline(const Sources& from) {
  const Directory& directory = from.directory;
  if (directory.splade.has_value()) return LoadSplade(from);
  std::vector<Pooling> poolings = directory.poolings;
  if (poolings.empty() && !directory.tokens) poolings.push_back(Pooling::kMean);
  const int64_t side_by_side = std::max<int64_t>(1, std::ssize(poolings));
  absl::StatusOr<LoadedDense> dense =
      LoadDense(directory.dense, side_by_side * from.hidden(), from.device);
  if (!dense.ok()) return dense.status();
  DenseStack of_pooled, of_tokens;
  (directory.tokens ? of_tokens : of_pooled) = std::move(dense->stack);
  return LoadedHead{std::make_unique<PoolingHead>(poolings, from.hidden(), directory.normalize,
                                                  std::move(of_pooled), std::move(of_tokens)),
                    dense->parameters, dense->weight_bytes};
}

}  // namespace

absl::StatusOr<LoadedHead> LoadHead(const Directory& directory, ConfigReader& config,
                                    const hf::Safetensors& files, const FamilyModel& model,
                                    const std::string& prefix, at::ScalarType dtype,
                                    at::Device device) {
  const Sources from{directory, config, files, model, prefix, dtype, device};
  if (IsBgeM3(from)) return LoadBgeM3(from);
  if (directory.task == Task::kSequenceClassification) return LoadClassifier(from, false);
  if (directory.task == Task::kTextGeneration) return LoadLogitScore(from);
  if (directory.has_modules) return LoadPipeline(from);
  const std::vector<std::string> architectures = config.Strings("architectures");
  if (!config.status().ok()) return config.status();
  const std::string name = architectures.empty() ? "" : architectures.front();
  if (name.ends_with("ForSequenceClassification")) return LoadClassifier(from, /*tokens=*/false);
  if (name.ends_with("ForTokenClassification")) return LoadClassifier(from, /*tokens=*/true);
  if (name == "HF_ColBERT") return LoadColbert(from);
  // A body, or a class whose head is not served, such as a masked language model.
  return LoadPipeline(from);
}

}  // namespace castor::encoder

#include "engine/encoder/heads/load_head.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/heads/classifier.h"
#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/heads/splade.h"
#include "engine/encoder/heads/token_projection.h"

namespace castor::encoder {
namespace {

// What every head is made from.
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

  // The family's layout; an error at `key` if it has none.
  const HeadLayout* layout(std::string_view key, std::string_view problem) const {
    if (model.heads == nullptr) config.Fail(key, problem);
    return model.heads;
  }

  // A layout's name as the checkpoint has it.
  std::string name(std::string_view name) const {
    return name.starts_with('~') ? prefix + std::string(name.substr(1)) : std::string(name);
  }

  HeadTransform Transform(WeightReader& weights, TransformNames names,
                          const HeadLayout& layout) const {
    const std::string dense = name(names.dense);
    names.dense = dense;
    return TakeTransform(config, weights, names, epsilon(layout), hidden());
  }

  double epsilon(const HeadLayout& layout) const {
    if (layout.epsilon_key.empty()) return layout.epsilon;
    return config.Double(layout.epsilon_key, layout.epsilon);
  }
};

absl::StatusOr<LoadedHead> LoadClassifier(const Sources& from, bool tokens) {
  const HeadLayout* layout =
      from.layout("architectures", "this family's classifiers are not known");
  if (layout == nullptr) return from.config.status();
  const ClassifierNames& names = tokens ? layout->tokens : layout->sequences;
  std::optional<CrossEncoder> cross_encoder;
  if (from.directory.has_modules) cross_encoder = {.activation = from.directory.activation};
  ClassifierConfig config = ReadClassifier(from.config, tokens, names, cross_encoder);
  if (!from.config.status().ok()) return from.config.status();
  WeightReader weights = from.weights(at::kFloat);
  HeadTransform transform = from.Transform(weights, names.transform, *layout);
  if (!from.config.status().ok()) return from.config.status();
  Linear out = TakeLinear(weights, from.name(names.out), static_cast<int64_t>(config.labels.size()),
                          from.hidden(), names.bias);
  if (!weights.status().ok()) return weights.status();
  return LoadedHead{
      std::make_unique<ClassifierHead>(std::move(config), std::move(transform), std::move(out)),
      weights.parameters(), weights.bytes()};
}

absl::StatusOr<LoadedHead> LoadSplade(const Sources& from) {
  const HeadLayout* layout =
      from.layout("model_type",
                  "this family's masked language models are not known, which "
                  "modules.json asks for");
  if (layout == nullptr) return from.config.status();
  const MaskedLmNames& names = layout->masked;
  if (names.words.empty()) {
    from.config.Fail("model_type", "this family's masked language models are not served");
    return from.config.status();
  }
  WeightReader weights = from.weights(from.dtype);
  HeadTransform transform = from.Transform(weights, names.transform, *layout);
  const bool tied = from.config.Bool("tie_word_embeddings", names.by_default);
  const bool bias = names.bias_key.empty() || from.config.Bool(names.bias_key, names.by_default);
  if (!from.config.status().ok()) return from.config.status();
  const int64_t vocabulary = from.model.rules.vocabulary;
  // As transformers 5 has it, what is stored counts, and ties are for what is not.
  const std::string decoder_name(names.decoder);
  const bool own = !tied || weights.Has(decoder_name + ".weight");
  at::Tensor decoder = weights.Take((own ? decoder_name : from.name(names.words)) + ".weight",
                                    {vocabulary, from.hidden()});
  const std::string own_bias = decoder_name + ".bias";
  at::Tensor offsets;
  if (bias) offsets = weights.Take(weights.Has(own_bias) ? own_bias : names.bias, {vocabulary});
  if (!weights.status().ok()) return weights.status();
  const SpladeModule& splade = *from.directory.splade;
  return LoadedHead{std::make_unique<SpladeHead>(
                        SpladeConfig{.sum = splade.sum, .twice = splade.twice},
                        std::move(transform), Linear(std::move(decoder), std::move(offsets))),
                    weights.parameters(), weights.bytes()};
}

// The projection that ColBERT's own checkpoints keep beside the body.
absl::StatusOr<LoadedHead> LoadColbert(const Sources& from) {
  WeightReader weights = from.weights(at::kFloat);
  const hf::StoredTensor* stored = from.files.Find("linear.weight");
  const int64_t out = stored != nullptr && !stored->shape.empty() ? stored->shape[0] : 1;
  std::vector<DenseLayer> layers;
  layers.push_back({TakeLinear(weights, "linear", out, from.hidden(), /*bias=*/false), {}});
  if (!weights.status().ok()) return weights.status();
  return LoadedHead{
      std::make_unique<TokenProjectionHead>(DenseStack(std::move(layers)), /*normalize=*/true),
      weights.parameters(), weights.bytes()};
}

// What modules.json says.
absl::StatusOr<LoadedHead> LoadPipeline(const Sources& from) {
  const Directory& directory = from.directory;
  if (directory.splade.has_value()) return LoadSplade(from);
  const std::vector<Pooling> poolings =
      directory.poolings.empty() ? std::vector{Pooling::kMean} : directory.poolings;
  const int64_t width =
      directory.tokens ? from.hidden() : static_cast<int64_t>(poolings.size()) * from.hidden();
  absl::StatusOr<LoadedDense> dense = LoadDense(directory.dense, width, from.device);
  if (!dense.ok()) return dense.status();
  std::unique_ptr<Head> head;
  if (directory.tokens) {
    head = std::make_unique<TokenProjectionHead>(std::move(dense->stack), directory.normalize);
  } else {
    head = std::make_unique<PoolingHead>(poolings, from.hidden(), directory.normalize,
                                         std::move(dense->stack));
  }
  return LoadedHead{std::move(head), dense->parameters, dense->weight_bytes};
}

}  // namespace

absl::StatusOr<LoadedHead> LoadHead(const Directory& directory, ConfigReader& config,
                                    const hf::Safetensors& files, const FamilyModel& model,
                                    const std::string& prefix, at::ScalarType dtype,
                                    at::Device device) {
  const Sources from{directory, config, files, model, prefix, dtype, device};
  if (directory.task == Task::kSequenceClassification) return LoadClassifier(from, false);
  if (directory.has_modules) return LoadPipeline(from);
  const std::vector<std::string> architectures = config.Strings("architectures");
  if (!config.status().ok()) return config.status();
  const std::string name = architectures.empty() ? "" : architectures.front();
  if (name.ends_with("ForSequenceClassification")) return LoadClassifier(from, /*tokens=*/false);
  if (name.ends_with("ForTokenClassification")) return LoadClassifier(from, /*tokens=*/true);
  if (name == "HF_ColBERT") return LoadColbert(from);
  // A body, or a class whose head has no output here, such as a masked language model.
  return LoadPipeline(from);
}

}  // namespace castor::encoder

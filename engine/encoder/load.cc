#include "engine/encoder/load.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/attention/scalar_type.h"
#include "engine/encoder/body.h"
#include "engine/encoder/config_reader.h"
#include "engine/encoder/directory.h"
#include "engine/encoder/weights.h"
#include "engine/hf/safetensors.h"
#include "engine/kernel_table.h"

namespace castor::encoder {
namespace {

struct LoadedBody {
  std::unique_ptr<Body> body;
  int64_t parameters;
};

absl::StatusOr<LoadedBody> LoadBody(const std::string& directory, at::ScalarType dtype,
                                    at::Device device) {
  absl::StatusOr<ConfigReader> config = ReadConfig(directory + "/config.json");
  if (!config.ok()) return config.status();
  const std::string model_type = config->String("model_type", "");
  const Family* family = FindFamily(model_type);
  if (family == nullptr) {
    config->Fail("model_type", model_type.empty() ? "is missing"
                                                  : "\"" + model_type + "\" is not known; " +
                                                        KnownFamilies() + " is");
    return config->status();
  }
  absl::StatusOr<std::unique_ptr<hf::Safetensors>> files = hf::Safetensors::OpenModel(directory);
  if (!files.ok()) return files.status();
  WeightReader weights(**files, directory, dtype, device);
  absl::StatusOr<std::unique_ptr<Body>> body = family->build(*config, weights);
  if (!body.ok()) return body.status();
  return LoadedBody{*std::move(body), weights.parameters()};
}

// Where the parts of a directory contradict each other.
absl::Status CheckAgreement(const Directory& directory, const BodyInfo& body,
                            const hf::Tokenizer& tokenizer, int64_t max_tokens) {
  if (tokenizer.id_limit() > body.vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory.transformer, "/tokenizer.json: its greatest id is ", tokenizer.id_limit() - 1,
        ", config.json has a vocab_size of ", body.vocabulary));
  }
  // Pairs get type 1 everywhere; a model of one type is not told of it (prepare.cc).
  if (tokenizer.type_limit() > std::max<int64_t>(body.type_vocabulary, 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory.transformer, "/tokenizer.json: its greatest type id is ",
                     tokenizer.type_limit() - 1, ", config.json has a type_vocab_size of ",
                     body.type_vocabulary));
  }
  if (max_tokens <= std::max(tokenizer.added_tokens(false), tokenizer.added_tokens(true))) {
    return absl::InvalidArgumentError(absl::StrCat(directory.transformer, ": a maximum of ",
                                                   max_tokens, " tokens leaves no room for text"));
  }
  if (directory.embedding_size.has_value() && *directory.embedding_size != body.hidden) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory.transformer, ": the pooling's word_embedding_dimension is ",
        *directory.embedding_size, ", config.json has a hidden_size of ", body.hidden));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Model>> Load(const ModelSource& source, at::Device device,
                                            AttentionFn attention) {
  const c10::InferenceMode inference;
  if (source.dtype != DType::kFloat32 && source.dtype != DType::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat("models are served as FLOAT32 or BFLOAT16, not ",
                                                   std::string(NameOf(source.dtype))));
  }
  absl::StatusOr<Directory> directory = ReadDirectory(source.directory);
  if (!directory.ok()) return directory.status();
  const at::ScalarType dtype = attention::ScalarTypeOf(source.dtype);
  absl::StatusOr<LoadedBody> loaded = LoadBody(directory->transformer, dtype, device);
  if (!loaded.ok()) return loaded.status();
  absl::StatusOr<std::unique_ptr<hf::Tokenizer>> tokenizer =
      hf::Tokenizer::Open(directory->transformer + "/tokenizer.json");
  if (!tokenizer.ok()) return tokenizer.status();

  const BodyInfo& body = loaded->body->info();
  const int64_t max_tokens =
      std::min(body.max_tokens, directory->max_tokens.value_or(body.max_tokens));
  if (absl::Status s = CheckAgreement(*directory, body, **tokenizer, max_tokens); !s.ok()) return s;

  ModelInfo info;
  info.name = source.name;
  info.family = body.family;
  info.dtype = source.dtype;
  info.hidden_size = body.hidden;
  info.layers = static_cast<int32_t>(body.layers);
  info.heads = static_cast<int32_t>(body.heads);
  info.max_tokens = max_tokens;
  info.vocabulary_size = body.vocabulary;
  info.type_vocabulary_size = body.type_vocabulary;
  info.pooling = directory->pooling;
  info.normalize = directory->normalize;
  // CAST needs surrogate tokens, which these families are not trained with.
  for (const KernelRow& row : kKernels) {
    if (row.kind != KernelKind::kOther) info.kernels.push_back(row.name);
  }
  info.outputs = {EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings};
  info.parameters = loaded->parameters;
  info.weight_bytes = loaded->parameters * static_cast<int64_t>(SizeOf(source.dtype));
  return std::make_shared<Model>(std::move(info), device, *std::move(tokenizer),
                                 std::move(loaded->body), std::move(attention));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Model>> LoadModel(const ModelSource& source, at::Device device,
                                                 AttentionFn attention) {
  try {
    return Load(source, device, std::move(attention));
  } catch (const c10::Error& error) {
    return absl::InternalError(
        absl::StrCat(source.directory, ": ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(source.directory, ": ", error.what()));
  }
}

}  // namespace castor::encoder

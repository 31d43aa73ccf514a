// TextModel::CheckInput: all that can be checked without tokenizing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/encoder/text/output_types.h"
#include "engine/encoder/text/prompts.h"
#include "engine/encoder/text/spans.h"
#include "engine/encoder/text/text_model.h"
#include "engine/hf/tokenizer.h"
#include "engine/tensor_reader.h"

namespace castor::encoder {
namespace {

absl::Status CheckCount(std::string_view field, size_t count, int64_t max_sequences) {
  if (count == 0) return InvalidField(field, "needs at least one entry");
  if (count > static_cast<size_t>(max_sequences)) {
    return InvalidField(field, absl::StrCat("has ", count, " entries; at most ", max_sequences,
                                            " are allowed in one request"));
  }
  return absl::OkStatus();
}

// The problem of `text`; empty: none.
std::string ProblemOf(std::string_view text, int64_t max_text_bytes) {
  if (text.size() > static_cast<size_t>(max_text_bytes)) {
    return absl::StrCat("has ", text.size(), " bytes; at most ", max_text_bytes,
                        " are allowed (--max-text-bytes)");
  }
  return hf::IsUtf8(text) ? "" : "is not valid UTF-8";
}

absl::Status CheckTexts(const std::vector<std::string_view>& texts, std::string_view field,
                        int64_t max_text_bytes) {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (TextInput::Repeats(texts, i)) continue;
    const std::string problem = ProblemOf(texts[i], max_text_bytes);
    if (!problem.empty()) return InvalidField(FieldAt(field, i), problem);
  }
  return absl::OkStatus();
}

// A free prompt is sent once, and tokenized again before every text.
absl::Status CheckPromptText(const EncodeRequest& request, int64_t max_text_bytes) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  const auto* input = std::get_if<TextInput>(&request.input);
  if (!request.prompt.has_value() || input == nullptr) return absl::OkStatus();
  const std::string problem = ProblemOf(*request.prompt, max_text_bytes);
  if (!problem.empty()) return InvalidField("prompt", problem);
  if (request.prompt->size() * input->texts.size() <= kMostBytes) return absl::OkStatus();
  return InvalidField(
      "prompt", absl::StrCat("has ", request.prompt->size(), " bytes before ", input->texts.size(),
                             " texts; at most ", kMostBytes, " are allowed together"));
}

absl::Status CheckText(const EncodeRequest& request, const TextInput& input, int64_t max_sequences,
                       int64_t max_text_bytes) {
  // The query before the documents does not count as one of them.
  const size_t query = request.output == EncodeOutput::kMaxSim && !input.texts.empty() ? 1 : 0;
  absl::Status status = CheckCount("texts.texts", input.texts.size() - query, max_sequences);
  if (!status.ok()) return status;
  if (!input.pairs.empty() && input.pairs.size() != input.texts.size()) {
    return InvalidField("texts.pairs", absl::StrCat("has ", input.pairs.size(), " entries for ",
                                                    input.texts.size(), " texts"));
  }
  status = CheckTexts(input.texts, "texts.texts", max_text_bytes);
  if (!status.ok()) return status;
  return CheckTexts(input.pairs, "texts.pairs", max_text_bytes);
}

// Checks that each length is at least `least` and that they add up to `tokens`. Without lengths,
// all tokens are one sequence.
absl::Status CheckLengths(const std::vector<int64_t>& lengths, int64_t tokens,
                          std::string_view values, std::string_view field, int64_t max_sequences,
                          int64_t least = 1) {
  if (tokens < least || (tokens == 0 && lengths.empty())) {
    return InvalidField(values, "needs at least one token");
  }
  if (tokens > INT32_MAX) return InvalidField(values, "has more than 2^31 - 1 tokens");
  if (lengths.empty()) return absl::OkStatus();
  if (absl::Status s = CheckCount(field, lengths.size(), max_sequences); !s.ok()) return s;
  int64_t sum = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < least) {
      return InvalidField(FieldAt(field, i), absl::StrCat("must be at least ", least));
    }
    if (lengths[i] > tokens - sum) {
      return InvalidField(field, absl::StrCat("add up to more than the ", tokens, " tokens given"));
    }
    sum += lengths[i];
  }
  if (sum != tokens) {
    return InvalidField(field,
                        absl::StrCat("add up to ", sum, ", but ", tokens, " tokens were given"));
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const std::vector<int64_t>& ids, int64_t limit, std::string_view field) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= limit) {
      return InvalidField(FieldAt(field, i),
                          absl::StrCat("is ", ids[i], "; must be within 0..", limit - 1));
    }
  }
  return absl::OkStatus();
}

// The tokenizer cannot be stopped while it makes one text, so that text is bounded.
absl::Status CheckDetokenized(const TokenInput& input, int64_t max_text_bytes) {
  const bool one = input.lengths.empty();
  const int64_t longest = one ? std::ssize(input.ids) : std::ranges::max(input.lengths);
  if (longest <= max_text_bytes) return absl::OkStatus();
  return InvalidField(one ? "tokens.ids" : "tokens.lengths",
                      absl::StrCat("make one text of ", longest, " ids; at most ", max_text_bytes,
                                   " are allowed (--max-text-bytes)"));
}

absl::Status CheckTokens(const TokenInput& input, const ModelInfo& info, int64_t max_sequences,
                         int64_t least) {
  const auto tokens = static_cast<int64_t>(input.ids.size());
  absl::Status status =
      CheckLengths(input.lengths, tokens, "tokens.ids", "tokens.lengths", max_sequences, least);
  if (!status.ok()) return status;
  if (!input.type_ids.empty() && input.type_ids.size() != input.ids.size()) {
    return InvalidField("tokens.type_ids", absl::StrCat("has ", input.type_ids.size(),
                                                        " entries for ", tokens, " ids"));
  }
  status = CheckIds(input.ids, info.vocabulary_size, "tokens.ids");
  if (!status.ok()) return status;
  return CheckIds(input.type_ids, info.type_vocabulary_size, "tokens.type_ids");
}

absl::Status CheckEmbeddings(const EmbeddingInput& input, const ModelInfo& info,
                             int64_t max_sequences) {
  const TensorInput& values = input.values;
  if (!info.takes_embeddings) {
    return InvalidField(
        "embeddings",
        "this model takes none, as its word embeddings are narrower than its rows: send "
        "texts or tokens");
  }
  if (!IsFloating(values.dtype)) {
    return InvalidField("embeddings.values.dtype", "must be FLOAT32, FLOAT16 or BFLOAT16");
  }
  if (values.shape.size() != 2) {
    return InvalidField("embeddings.values.shape", "must be [tokens, hidden]");
  }
  if (values.shape[0] < 0) return InvalidField("embeddings.values.shape[0]", "must be positive");
  if (values.shape[1] != info.hidden_size) {
    return InvalidField("embeddings.values.shape[1]",
                        absl::StrCat("must be the model's hidden size, ", info.hidden_size));
  }
  const std::optional<int64_t> bytes = NumBytes(values.dtype, values.shape);
  if (!bytes.has_value()) return InvalidField("embeddings.values.shape", "overflows");
  if (values.size_bytes() != *bytes) {
    return InvalidField(
        DataField(values, "embeddings.values"),
        absl::StrCat("has ", values.size_bytes(), " bytes, the shape needs ", *bytes));
  }
  return CheckLengths(input.lengths, values.shape[0], "embeddings.values.shape[0]",
                      "embeddings.lengths", max_sequences);
}

// Checks that the model has each output, and that none is named twice.
absl::Status CheckNames(const EncodeRequest& request, const ModelInfo& info,
                        std::span<const EncodeOutput> outputs) {
  if (request.output.has_value() && !request.outputs.empty()) {
    return InvalidField("output", "cannot be combined with `outputs`");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string field = request.outputs.empty() ? "output" : FieldAt("outputs", i);
    const std::string name(OutputName(outputs[i]));
    const bool has =
        outputs[i] == EncodeOutput::kMaxSim
            ? request.outputs.empty() && info.outputs.front() == EncodeOutput::kTokenEmbeddings
            : std::ranges::count(info.outputs, outputs[i]) > 0;
    if (!has) {
      return InvalidField(field, absl::StrCat("model \"", info.name, "\" has no ", name,
                                              "; it has ", NamesOfOutputs(info)));
    }
    if (std::ranges::count(outputs.first(i), outputs[i]) > 0) {
      return InvalidField(field, absl::StrCat(name, " is named twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const EncodeRequest& request, const ModelInfo& info,
                          std::span<const EncodeOutput> outputs) {
  if (absl::Status s = CheckNames(request, info, outputs); !s.ok()) return s;
  const std::string problem =
      absl::StrCat("has no meaning for ", std::string(OutputName(outputs.front())));
  if (request.pooling.has_value() && !Pools(outputs)) return InvalidField("pooling", problem);
  if (std::none_of(outputs.begin(), outputs.end(), HasVectors)) {
    if (request.dimensions != 0) return InvalidField("dimensions", problem);
    if (request.normalize.has_value()) return InvalidField("normalize", problem);
    if (request.output_type != OutputType::kFloat32) return InvalidField("output_type", problem);
    return absl::OkStatus();
  }
  if (request.pooling.has_value() && *request.pooling != info.pooling &&
      (info.pooling == Pooling::kSeveral || *request.pooling == Pooling::kSeveral)) {
    return InvalidField("pooling", info.pooling == Pooling::kSeveral
                                       ? "must be SEVERAL or left out: this model concatenates "
                                         "several poolings"
                                       : "SEVERAL is only for models that concatenate poolings");
  }
  int64_t width = INT64_MAX;
  for (const EncodeOutput output : outputs) {
    if (HasVectors(output)) width = std::min(width, WidthOf(info, output));
  }
  if (request.dimensions < 0 || request.dimensions > width) {
    return InvalidField("dimensions", absl::StrCat("must be within 0..", width, " for this model"));
  }
  return absl::OkStatus();
}

// The texts of a model that puts pairs into a text of its own.
absl::Status CheckPairs(const EncodeRequest& request, const ModelInfo& info) {
  const auto* input = std::get_if<TextInput>(&request.input);
  const bool prompts = !request.prompt.value_or(request.prompt_name.value_or("")).empty();
  if (input == nullptr) return absl::OkStatus();
  if (request.runs() == input->pairs.empty()) {
    return InvalidField("texts.pairs",
                        request.runs() ? "this model needs pairs of texts, which it puts into a "
                                         "text of its own"
                                       : "must be empty: this model puts pairs into a text of its "
                                         "own");
  }
  if (prompts && (!info.takes_instruction || !request.runs())) {
    return InvalidField(request.prompt.has_value() ? "prompt" : "prompt_name",
                        "this model's text around pairs has no place for it");
  }
  if (request.truncation_side == Side::kLeft) {
    return InvalidField("truncation_side", "must not be LEFT: a document is cut at its end");
  }
  if (request.spans.ranges.empty()) return absl::OkStatus();
  return InvalidField("spans", "has no meaning for this model's text around pairs");
}

absl::Status CheckTask(const EncodeRequest& request, const ModelInfo& info) {
  if (!request.runs() || std::ranges::count(info.tasks, request.task) > 0) return absl::OkStatus();
  if (request.task.empty() && !info.needs_task) return absl::OkStatus();
  std::string known;
  for (const std::string& task : info.tasks) {
    absl::StrAppend(&known, known.empty() ? "; known are " : ", ", "\"", task, "\"");
  }
  return InvalidField("task", absl::StrCat(request.task.empty() ? "missing: this model needs one"
                                                                : "is not a task of this model",
                                           known.empty() ? "; it has none" : known));
}

}  // namespace

absl::Status TextModel::CheckInput(const EncodeRequest& request, int64_t max_sequences,
                                   int64_t max_text_bytes) const {
  if (std::holds_alternative<TokenizeOnly>(request.instead) &&
      !std::holds_alternative<TextInput>(request.input)) {
    return InvalidField("input", "must be texts, to be tokenized");
  }
  const bool detokenizes = std::holds_alternative<DetokenizeOnly>(request.instead);
  if (detokenizes && !std::holds_alternative<TokenInput>(request.input)) {
    return InvalidField("input", "must be tokens, to be detokenized");
  }
  const std::span<const EncodeOutput> outputs = OutputsOf(request, info_);
  if (absl::Status s = CheckOutputs(request, info_, outputs); !s.ok()) return s;
  if (request.max_tokens < 0 || request.max_tokens > info_.max_tokens) {
    return InvalidField("max_tokens",
                        absl::StrCat("must be within 0..", info_.max_tokens, " for this model"));
  }
  if (request.return_texts && !std::holds_alternative<TextInput>(request.input)) {
    return InvalidField("input", "must be texts, to be returned");
  }
  absl::Status status;
  if (const auto* texts = std::get_if<TextInput>(&request.input)) {
    status = CheckText(request, *texts, max_sequences, max_text_bytes);
  } else if (const auto* tokens = std::get_if<TokenInput>(&request.input)) {
    status = CheckTokens(*tokens, info_, max_sequences, detokenizes ? 0 : 1);
    if (status.ok() && detokenizes) status = CheckDetokenized(*tokens, max_text_bytes);
  } else {
    status = CheckEmbeddings(std::get<EmbeddingInput>(request.input), info_, max_sequences);
  }
  if (info_.lexical && std::holds_alternative<EmbeddingInput>(request.input) &&
      std::ranges::count(outputs, EncodeOutput::kSparse) > 0) {
    return InvalidField("embeddings", "SPARSE needs token ids, which embeddings do not have");
  }
  if (status.ok() && pairs_.has_value()) status = CheckPairs(request, info_);
  if (status.ok()) status = CheckPrompt(request, info_.prompts);
  if (status.ok()) status = CheckTask(request, info_);
  if (status.ok()) status = CheckPromptText(request, max_text_bytes);
  return status.ok() ? CheckSpans(request, Pools(outputs)) : status;
}

}  // namespace castor::encoder

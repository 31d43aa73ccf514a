#include "server/codec/rerank_codec.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>

#include "castor/v1/encoder.pb.h"
#include "engine/base/error.h"
#include "server/codec/convert.h"
#include "server/codec/response.h"

namespace castor::server {
namespace {

// Null if no model has the name; the engine then refuses it.
const ModelInfo* Find(std::span<const ModelInfo> models, std::string_view name) {
  if (name.empty() && models.size() == 1) return &models.front();
  const auto found = std::ranges::find(models, name, &ModelInfo::name);
  return found == models.end() ? nullptr : &*found;
}

// Its default output is a row for each token.
bool HasLateInteraction(const ModelInfo& model) {
  return !model.outputs.empty() && model.outputs.front() == EncodeOutput::kTokenEmbeddings;
}

}  // namespace

bool ScoresPairs(const ModelInfo& model) {
  return model.labels.size() == 1 && !model.token_labels &&
         std::ranges::count(model.outputs, EncodeOutput::kLogits) > 0;
}

bool CanRerank(const ModelInfo& model) { return ScoresPairs(model) || HasLateInteraction(model); }

absl::Status ConvertRerankRequest(wire::RerankRequest from, std::span<const ModelInfo> models,
                                  DecodedRerank* out) {
  const ModelInfo* const model = Find(models, from.model);
  const bool late = model != nullptr && HasLateInteraction(*model);
  if (model != nullptr && !CanRerank(*model)) {
    return InvalidField("model", "\"" + model->name +
                                     "\" cannot rerank: not a one-label text classifier and not a "
                                     "late-interaction model");
  }
  if (from.top_n < 0) return InvalidField("top_n", "must be at least 0");
  if (from.documents.empty()) return InvalidField("documents", "needs at least one entry");
  if (late && (from.prompt.has_value() || from.prompt_name.has_value())) {
    return InvalidField(from.prompt.has_value() ? "prompt" : "prompt_name",
                        "not allowed: this model has its own prompts for queries and documents");
  }
  if (!from.instruction.empty()) {
    if (model != nullptr && !model->takes_instruction) {
      return InvalidField(
          "instruction",
          "not allowed: \"" + model->name + "\" has no place for one; see Model.takes_instruction");
    }
    if (from.prompt.has_value() || from.prompt_name.has_value()) {
      return InvalidField("instruction", "cannot be combined with `prompt` or `prompt_name`");
    }
    from.prompt = std::move(from.instruction);
  }
  if (model != nullptr) out->request.generation = model->generation;
  out->ranking.late_interaction = late;
  out->ranking.top_n = from.top_n;
  wire::EncodeRequest pairs;
  static_cast<wire::TextOptions&>(pairs) = from;
  wire::TextBatch& texts = pairs.input.emplace<wire::TextBatch>();
  if (late) {
    texts.texts = std::move(from.documents);
    texts.texts.insert(texts.texts.begin(), from.query);
  } else {
    texts.texts.resize(from.documents.size(), from.query);
    texts.pairs = std::move(from.documents);
    pairs.outputs = {v1::LOGITS, v1::SCORES};
  }
  out->request.return_texts = from.return_documents;
  texts.allow_special_tokens = from.allow_special_tokens;
  pairs.task = std::move(from.task);
  pairs.kernel = std::move(from.kernel);
  absl::Status status = ConvertEncodeRequest(std::move(pairs), out);
  if (late) out->request.output = EncodeOutput::kMaxSim;
  return status;
}

absl::Status DecodeRerankRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                 std::span<const ModelInfo> models, DecodedRerank* out) {
  wire::RerankRequest message;
  if (absl::Status s = ReadRequest(bytes, scope, &message, out); !s.ok()) return s;
  return ConvertRerankRequest(std::move(message), models, out);
}

absl::Status RenameTextFields(const absl::Status& error, const TextFields& names,
                              bool late_interaction, bool submitted) {
  constexpr std::string_view kTexts = "texts.texts", kPairs = "texts.pairs", kIds = "tokens.ids";
  const std::optional<std::string> field = castor::FieldOf(error);
  if (!field.has_value()) return error;
  const std::string texts(names.texts);
  std::string name;
  int64_t text = 0;
  if (names.query.empty() && (field->starts_with(kTexts) || field->starts_with(kPairs))) {
    name = texts + field->substr(kTexts.size());
  } else if (names.query.empty() && field->starts_with(kIds)) {
    name = texts + field->substr(kIds.size());
  } else if (late_interaction && field->starts_with(kTexts) &&
             std::sscanf(field->c_str() + kTexts.size(), "[%" PRId64, &text) == 1) {
    name = text == 0 ? std::string(names.query) : FieldAt(texts, static_cast<size_t>(text - 1));
  } else if (field->starts_with(kPairs) || *field == kTexts ||
             (submitted && field->starts_with(kTexts))) {
    name = texts + field->substr(kTexts.size());
  } else if (field->starts_with(kTexts)) {
    name = names.query;  // which each pair has
  } else {
    return error;
  }
  return RenameField(error, name);
}

std::vector<int32_t> RankByLogit(std::span<const float> logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    if (std::isnan(logits[a]) || std::isnan(logits[b])) {
      return !std::isnan(logits[a]) && std::isnan(logits[b]);
    }
    return logits[a] > logits[b];
  });
  return order;
}

RerankScores ScoresOf(const EncodeResult& result) {
  const auto values = [&](const TensorResult& rows) {
    const float* const data = rows.data.as<float>();
    return std::vector<float>(data, data + rows.shape[0]);
  };
  if (!result.outputs.empty()) {
    return {values(result.outputs[0].values), values(result.outputs[1].values)};
  }
  std::vector<float> max_sim = values(result.output);
  return {max_sim, max_sim};
}

grpc::ByteBuffer EncodeRerankResponse(std::string_view request_id, EncodeResult result,
                                      const Ranking& ranking, double total_us) {
  v1::RerankResponse message;
  message.set_request_id(request_id.data(), request_id.size());
  message.set_model(std::move(result.model));
  const auto [logits, scores] = ScoresOf(result);
  std::vector<int32_t> order = RankByLogit(logits);
  if (ranking.top_n > 0 && static_cast<size_t>(ranking.top_n) < order.size()) {
    order.resize(ranking.top_n);
  }
  const int first = ranking.late_interaction ? 1 : 0;  // row 0 is the query
  message.mutable_results()->Reserve(static_cast<int>(order.size()));
  for (const int32_t i : order) {
    v1::RankedDocument* const row = message.add_results();
    row->set_index(i);
    row->set_score(scores[i]);
    row->set_logit(logits[i]);
    if (result.texts.empty()) continue;
    const std::string_view document = result.texts[i + first];
    row->set_document(document.data(), document.size());
  }
  message.mutable_token_counts()->Assign(result.token_counts.begin() + first,
                                         result.token_counts.end());
  message.mutable_truncated()->Assign(result.truncated.begin() + first, result.truncated.end());
  if (!ranking.late_interaction) message.set_prompt_name(std::move(result.prompt_name));
  FillReports(result.report, total_us, &message);
  return WithTensors(message, {});
}

}  // namespace castor::server

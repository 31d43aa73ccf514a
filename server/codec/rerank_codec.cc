#include "server/codec/rerank_codec.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "castor/v1/encoder.pb.h"
#include "engine/base/error.h"
#include "server/codec/convert.h"
#include "server/codec/response.h"

namespace castor::server {
namespace {

// Null: the engine says what is wrong with the name.
const ModelInfo* Find(std::span<const ModelInfo> models, std::string_view name) {
  if (name.empty() && models.size() == 1) return &models.front();
  const auto found = std::ranges::find(models, name, &ModelInfo::name);
  return found == models.end() ? nullptr : &*found;
}

}  // namespace

bool Reranks(const ModelInfo& model) {
  return model.labels.size() == 1 && !model.token_labels &&
         std::ranges::count(model.outputs, EncodeOutput::kLogits) > 0;
}

absl::Status ConvertRerankRequest(wire::RerankRequest from, std::span<const ModelInfo> models,
                                  DecodedRerank* out) {
  const ModelInfo* const model = Find(models, from.model);
  if (model != nullptr && !Reranks(*model)) {
    return InvalidField("model", "\"" + model->name +
                                     "\" does not rerank: it is no classifier of texts with one "
                                     "label");
  }
  if (from.top_n < 0) return InvalidField("top_n", "must be at least 0");
  out->ranking.top_n = from.top_n;
  if (from.return_documents) out->ranking.documents = from.documents;
  wire::EncodeRequest pairs;
  pairs.model = from.model;
  wire::TextBatch& texts = pairs.input.emplace<wire::TextBatch>();
  texts.texts.resize(from.documents.size(), from.query);
  texts.pairs = std::move(from.documents);
  texts.allow_special_tokens = from.allow_special_tokens;
  pairs.kernel = std::move(from.kernel);
  pairs.truncate = from.truncate;
  pairs.priority = from.priority;
  pairs.prompt_name = from.prompt_name;
  pairs.truncation_side = from.truncation_side;
  pairs.max_tokens = from.max_tokens;
  pairs.timeout_ms = from.timeout_ms;
  pairs.outputs = {v1::LOGITS, v1::SCORES};
  pairs.prompt = from.prompt;
  return ConvertEncodeRequest(std::move(pairs), out);
}

absl::Status DecodeRerankRequest(const grpc::ByteBuffer& bytes, TenantRegions shared_memory,
                                 std::span<const ModelInfo> models, DecodedRerank* out) {
  out->slices = SliceView(bytes);
  out->regions = RequestRegions(shared_memory);
  wire::RerankRequest message;
  absl::Status status = wire::Parse(&out->slices, &message);
  status.Update(ConvertRequestId(message.request_id, &out->request.call));
  if (!status.ok()) return status;
  return ConvertRerankRequest(std::move(message), models, out);
}

absl::Status RerankError(const absl::Status& error, bool submitted) {
  constexpr std::string_view kTexts = "texts.texts", kPairs = "texts.pairs";
  const std::optional<std::string> field = castor::FieldOf(error);
  if (!field.has_value()) return error;
  std::string name;
  if (field->starts_with(kPairs) || *field == kTexts || (submitted && field->starts_with(kTexts))) {
    name = "documents" + field->substr(kTexts.size());
  } else if (field->starts_with(kTexts)) {
    name = "query";  // which each pair has
  } else {
    return error;
  }
  std::string_view problem(error.message().data(), error.message().size());
  problem.remove_prefix(std::min(problem.size(), field->size() + 2));
  return InvalidField(ReasonOf(error), name, problem);
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
  const auto values = [&](size_t output) {
    return std::span(result.outputs[output].values.data.as<float>(), result.token_counts.size());
  };
  return {.logits = values(0), .scores = values(1)};
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
  message.mutable_results()->Reserve(static_cast<int>(order.size()));
  for (const int32_t i : order) {
    v1::RankedDocument* const row = message.add_results();
    row->set_index(i);
    row->set_score(scores[i]);
    row->set_logit(logits[i]);
    if (ranking.documents.empty()) continue;
    row->set_document(ranking.documents[i].data(), ranking.documents[i].size());
  }
  message.mutable_token_counts()->Assign(result.token_counts.begin(), result.token_counts.end());
  message.mutable_truncated()->Assign(result.truncated.begin(), result.truncated.end());
  message.set_prompt_name(std::move(result.prompt_name));
  FillReports(result.report, total_us, &message);
  return WithTensors(message, {}, result.outputs.front().values.share);
}

}  // namespace castor::server

#include "server/codec/rerank_codec.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>
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

// Its own output is a row for each token.
bool HasLateInteraction(const ModelInfo& model) {
  return !model.outputs.empty() && model.outputs.front() == EncodeOutput::kTokenEmbeddings;
}

// MaxSim runs where answers are made, some seconds at most.
absl::Status CheckProducts(const wire::RerankRequest& request, const ModelInfo& model) {
  constexpr double kMost = 0x1p34;                  // multiply-adds
  const auto tokens = [&](std::string_view text) {  // with some room for a prompt
    return std::min(static_cast<double>(model.max_tokens),
                    2.0 * static_cast<double>(text.size()) + 64);
  };
  double documents = 0;
  for (const std::string_view document : request.documents) documents += tokens(document);
  const double width =
      static_cast<double>(model.token_size > 0 ? model.token_size : model.hidden_size);
  if (tokens(request.query) * documents * width <= kMost) return absl::OkStatus();
  return MakeError(Reason::kTooLarge,
                   "the query's tokens times the documents' are too many: send fewer documents");
}

}  // namespace

bool ScoresPairs(const ModelInfo& model) {
  return model.labels.size() == 1 && !model.token_labels &&
         std::ranges::count(model.outputs, EncodeOutput::kLogits) > 0;
}

absl::Status ConvertRerankRequest(wire::RerankRequest from, std::span<const ModelInfo> models,
                                  DecodedRerank* out) {
  const ModelInfo* const model = Find(models, from.model);
  const bool late = model != nullptr && HasLateInteraction(*model);
  if (model != nullptr && !late && !ScoresPairs(*model)) {
    return InvalidField("model", "\"" + model->name +
                                     "\" does not rerank: it neither is a classifier of texts with "
                                     "one label nor has late interaction");
  }
  if (from.top_n < 0) return InvalidField("top_n", "must be at least 0");
  if (from.documents.empty()) return InvalidField("documents", "needs at least one entry");
  if (late && (from.prompt.has_value() || from.prompt_name.has_value())) {
    return InvalidField(from.prompt.has_value() ? "prompt" : "prompt_name",
                        "must be left out: this model has its own for queries and documents");
  }
  if (late) {
    if (absl::Status s = CheckProducts(from, *model); !s.ok()) return s;
  }
  out->ranking.late_interaction = late;
  out->ranking.top_n = from.top_n;
  if (from.return_documents) out->ranking.documents = from.documents;
  wire::EncodeRequest pairs;
  static_cast<wire::TextOptions&>(pairs) = from;
  wire::TextBatch& texts = pairs.input.emplace<wire::TextBatch>();
  if (late) {
    texts.texts = std::move(from.documents);
    texts.texts.insert(texts.texts.begin(), from.query);
    pairs.output = v1::TOKEN_EMBEDDINGS;
    out->request.query_first = true;
  } else {
    texts.texts.resize(from.documents.size(), from.query);
    texts.pairs = std::move(from.documents);
    pairs.outputs = {v1::LOGITS, v1::SCORES};
  }
  texts.allow_special_tokens = from.allow_special_tokens;
  pairs.kernel = std::move(from.kernel);
  return ConvertEncodeRequest(std::move(pairs), out);
}

absl::Status DecodeRerankRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                 std::span<const ModelInfo> models, DecodedRerank* out) {
  out->slices = SliceView(bytes, scope.budget);
  out->regions = RequestRegions(scope);
  wire::RerankRequest message;
  absl::Status status = wire::Parse(&out->slices, &message);
  status.Update(ConvertRequestId(message.request_id, &out->request.call));
  if (!status.ok()) return status;
  return ConvertRerankRequest(std::move(message), models, out);
}

absl::Status RerankError(const absl::Status& error, bool late_interaction, bool submitted) {
  constexpr std::string_view kTexts = "texts.texts", kPairs = "texts.pairs";
  const std::optional<std::string> field = castor::FieldOf(error);
  if (!field.has_value()) return error;
  std::string name;
  int64_t text = 0;
  if (late_interaction && field->starts_with(kTexts) &&
      std::sscanf(field->c_str() + kTexts.size(), "[%" PRId64, &text) == 1) {
    name = text == 0 ? "query" : FieldAt("documents", static_cast<size_t>(text - 1));
  } else if (field->starts_with(kPairs) || *field == kTexts ||
             (submitted && field->starts_with(kTexts))) {
    name = "documents" + field->substr(kTexts.size());
  } else if (field->starts_with(kTexts)) {
    name = "query";  // which each pair has
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

float MaxSim(std::span<const float> query, std::span<const float> document, size_t dimensions) {
  const size_t queries = query.size() / dimensions;
  // Transposed, so that products for all of the query's rows are summed side by side.
  std::vector<float> columns(query.size());
  for (size_t q = 0; q < queries; ++q) {
    for (size_t k = 0; k < dimensions; ++k) {
      columns[k * queries + q] = query[q * dimensions + k];
    }
  }
  std::vector<float> most(queries, -std::numeric_limits<float>::infinity()), products(queries);
  for (size_t at = 0; at < document.size(); at += dimensions) {
    std::ranges::fill(products, 0);
    for (size_t k = 0; k < dimensions; ++k) {
      const float value = document[at + k];
      const float* const column = &columns[k * queries];
      for (size_t q = 0; q < queries; ++q) products[q] += value * column[q];
    }
    for (size_t q = 0; q < queries; ++q) {
      most[q] = products[q] > most[q] || std::isnan(products[q]) ? products[q] : most[q];
    }
  }
  return std::accumulate(most.begin(), most.end(), 0.0F);
}

RerankScores ScoresOf(const EncodeResult& result, bool late_interaction) {
  RerankScores all;
  if (!late_interaction) {
    for (auto [output, values] : {std::pair{0, &all.logits}, {1, &all.scores}}) {
      const float* const data = result.outputs[output].values.data.as<float>();
      values->assign(data, data + result.token_counts.size());
    }
    return all;
  }
  const auto width = static_cast<size_t>(result.output.shape[1]);
  const std::span<const float> rows(result.output.data.as<float>(),
                                    static_cast<size_t>(result.output.shape[0]) * width);
  size_t at = static_cast<size_t>(result.lengths.front()) * width;
  const std::span<const float> query = rows.first(at);
  for (size_t i = 1; i < result.lengths.size(); ++i) {
    const size_t size = static_cast<size_t>(result.lengths[i]) * width;
    all.logits.push_back(MaxSim(query, rows.subspan(at, size), width));
    at += size;
  }
  all.scores = all.logits;
  return all;
}

grpc::ByteBuffer EncodeRerankResponse(std::string_view request_id, EncodeResult result,
                                      const Ranking& ranking, double total_us) {
  v1::RerankResponse message;
  message.set_request_id(request_id.data(), request_id.size());
  message.set_model(std::move(result.model));
  const auto [logits, scores] = ScoresOf(result, ranking.late_interaction);
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
  const int first = ranking.late_interaction ? 1 : 0;  // before it is the query
  message.mutable_token_counts()->Assign(result.token_counts.begin() + first,
                                         result.token_counts.end());
  message.mutable_truncated()->Assign(result.truncated.begin() + first, result.truncated.end());
  if (!ranking.late_interaction) message.set_prompt_name(std::move(result.prompt_name));
  FillReports(result.report, total_us, &message);
  return WithTensors(message, {}, std::move(result.output.share));
}

}  // namespace castor::server

#include "server/tei/messages.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>

#include "engine/base/error.h"
#include "server/codec/convert.h"
#include "server/codec/rerank_codec.h"
#include "server/tei/models.h"

namespace castor::server::tei {
namespace {

// The most characters of a text that is not truncated, for each token that the model takes.
constexpr int64_t kMaxCharactersPerToken = 250;
constexpr int64_t kAnyLength = std::numeric_limits<int64_t>::max();

using Texts = std::vector<std::string_view>;

absl::Status Invalid(const std::string& problem) {
  return MakeError(Reason::kInvalidField, "Input validation error: " + problem);
}

absl::Status RequireModelType(bool served, std::string_view what) {
  if (served) return absl::OkStatus();
  return absl::FailedPreconditionError("Backend error: Model is not " + std::string(what));
}

int64_t Characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

absl::Status SetTexts(Texts texts, Texts pairs, int64_t max_characters, Converted* out) {
  int64_t of_text = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string_view pair = pairs.empty() ? std::string_view() : pairs[i];
    if (texts[i].empty() && pair.empty()) return Invalid("`inputs` cannot be empty");
    if (!TextInput::Repeats(texts, i)) of_text = Characters(texts[i]);
    const int64_t characters = of_text + Characters(pair);
    if (characters > max_characters) {
      return Invalid("`inputs` must have less than " + std::to_string(max_characters) +
                     " characters. Given: " + std::to_string(characters));
    }
    out->answer_context.characters += characters;
  }
  out->request.input =
      TextInput{.texts = std::move(texts), .pairs = std::move(pairs), .allow_special_tokens = true};
  return absl::OkStatus();
}

// Sets the fields that all requests but Tokenize's have.
absl::Status Set(const wire::tei::Request& from, Texts texts, Texts pairs, const ModelInfo& model,
                 Converted* out) {
  if (!proto::TruncationDirection_IsValid(from.truncation_direction)) {
    return UnknownValue("truncation_direction", from.truncation_direction);
  }
  out->request.truncate = from.truncate;
  const bool left = from.truncation_direction == proto::TRUNCATION_DIRECTION_LEFT;
  out->request.truncation_side = left ? Side::kLeft : Side::kRight;
  out->answer_context.raw_scores = from.raw_scores;
  out->request.prompt_name = from.prompt_name;
  return SetTexts(std::move(texts), std::move(pairs),
                  from.truncate ? kAnyLength : kMaxCharactersPerToken * model.max_tokens, out);
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// Turns logits into probabilities: a sigmoid for one label, else a softmax.
void ToProbabilities(std::vector<float>* logits) {
  if (logits->size() == 1) {
    logits->front() = Sigmoid(logits->front());
    return;
  }
  const float greatest = *std::ranges::max_element(*logits);
  for (float& x : *logits) x = std::exp(x - greatest);
  const float sum = std::accumulate(logits->begin(), logits->end(), 0.0f);
  for (float& x : *logits) x /= sum;
}

std::vector<float> ValuesOf(const TensorResult& tensor) {
  const auto* const values = tensor.data.as<float>();
  return {values, values + tensor.data.size() / sizeof(float)};
}

uint64_t Nanoseconds(double us) { return us > 0 ? static_cast<uint64_t>(us * 1000) : 0; }

}  // namespace

absl::Status Convert(wire::tei::EmbedRequest from, const ModelInfo& model, Converted* out) {
  const bool served = Has(model, EncodeOutput::kPooled);
  if (absl::Status s = RequireModelType(served, "an embedding model"); !s.ok()) return s;
  if (from.dimensions == 0) return InvalidField("dimensions", "should be positive");
  out->request.output = EncodeOutput::kPooled;
  out->request.normalize = from.normalize.value_or(true);
  out->request.dimensions = from.dimensions.value_or(0);
  return Set(from, {from.inputs}, {}, model, out);
}

absl::Status Convert(wire::tei::EmbedSparseRequest from, const ModelInfo& model, Converted* out) {
  const bool served = Has(model, EncodeOutput::kSparse);
  if (absl::Status s = RequireModelType(served, "an embedding model with SPLADE pooling"); !s.ok())
    return s;
  out->request.output = EncodeOutput::kSparse;
  return Set(from, {from.inputs}, {}, model, out);
}

absl::Status Convert(wire::tei::EmbedAllRequest from, const ModelInfo& model, Converted* out) {
  const bool served = Has(model, EncodeOutput::kTokenEmbeddings);
  if (absl::Status s = RequireModelType(served, "an embedding model"); !s.ok()) return s;
  out->request.output = EncodeOutput::kTokenEmbeddings;
  out->request.normalize = false;
  return Set(from, {from.inputs}, {}, model, out);
}

absl::Status Convert(wire::tei::PredictRequest from, const ModelInfo& model, Converted* out) {
  if (absl::Status s = RequireModelType(Classifies(model), "a classifier model"); !s.ok()) return s;
  out->request.output = EncodeOutput::kLogits;
  return Set(from, {from.inputs}, {}, model, out);
}

absl::Status Convert(wire::tei::PredictPairRequest from, const ModelInfo& model, Converted* out) {
  if (absl::Status s = RequireModelType(Classifies(model), "a classifier model"); !s.ok()) return s;
  if (from.texts.size() != 1 && from.texts.size() != 2) {
    return InvalidField("inputs", "must have one or two entries");
  }
  out->request.output = EncodeOutput::kLogits;
  return Set(from, {from.texts[0]}, from.texts.size() == 2 ? Texts{from.texts[1]} : Texts(), model,
             out);
}

absl::Status Convert(wire::tei::RerankRequest from, const ModelInfo& model, Converted* out) {
  if (absl::Status s = RequireModelType(Classifies(model), "a classifier model"); !s.ok()) return s;
  if (absl::Status s = RequireModelType(ScoresPairs(model), "a re-ranker model"); !s.ok()) return s;
  out->request.output = EncodeOutput::kLogits;
  from.queries.resize(from.texts.size(), from.query);
  out->request.return_texts = from.return_text;
  return Set(from, std::move(from.queries), std::move(from.texts), model, out);
}

absl::Status Convert(wire::tei::EncodeRequest from, const ModelInfo&, Converted* out) {
  out->request.instead =
      TokenizeOnly{.add_special_tokens = from.add_special_tokens, .return_tokens = true};
  out->request.truncate = false;
  out->request.return_texts = true;
  out->request.prompt_name = from.prompt_name;
  return SetTexts({from.inputs}, {}, kAnyLength, out);
}

absl::Status Convert(wire::tei::DecodeRequest from, const ModelInfo&, Converted* out) {
  out->request.instead = DetokenizeOnly{.skip_special_tokens = from.skip_special_tokens};
  out->request.input.emplace<TokenInput>().ids = std::move(from.ids);
  return absl::OkStatus();
}

void Fill(const EncodeResult& result, const AnswerContext&, const ModelInfo&,
          proto::EmbedResponse* out) {
  const std::vector<float> values = ValuesOf(result.output);
  out->mutable_embeddings()->Assign(values.begin(), values.end());
}

void Fill(const EncodeResult& result, const AnswerContext&, const ModelInfo&,
          proto::EmbedSparseResponse* out) {
  for (size_t i = 0; i < result.sparse->indices.size(); ++i) {
    proto::SparseValue* const row = out->add_sparse_embeddings();
    row->set_index(static_cast<uint32_t>(result.sparse->indices[i]));
    row->set_value(result.sparse->values[i]);
  }
}

void Fill(const EncodeResult& result, const AnswerContext&, const ModelInfo&,
          proto::EmbedAllResponse* out) {
  const int64_t rows = result.output.shape[0], width = result.output.shape[1];
  const auto* const values = result.output.data.as<float>();
  for (int64_t i = 0; i < rows; ++i) {
    const std::span row(values + i * width, static_cast<size_t>(width));
    out->add_token_embeddings()->mutable_embeddings()->Assign(row.begin(), row.end());
  }
}

void Fill(const EncodeResult& result, const AnswerContext& context, const ModelInfo&,
          proto::PredictResponse* out) {
  std::vector<float> scores = ValuesOf(result.output);
  if (!context.raw_scores) ToProbabilities(&scores);
  for (const int32_t i : RankByLogit(scores)) {
    proto::Prediction* const row = out->add_predictions();
    row->set_score(scores[i]);
    row->set_label(result.labels[i]);
  }
}

void Fill(const EncodeResult& result, const AnswerContext& context, const ModelInfo&,
          proto::RerankResponse* out) {
  std::vector<float> scores = ValuesOf(result.output);
  if (!context.raw_scores) std::ranges::transform(scores, scores.begin(), Sigmoid);
  for (const int32_t i : RankByLogit(scores)) {
    proto::Rank* const row = out->add_ranks();
    row->set_index(static_cast<uint32_t>(i));
    row->set_score(scores[i]);
    if (result.texts.empty()) continue;
    row->set_text(result.texts[i].data(), result.texts[i].size());
  }
}

void Fill(const EncodeResult& result, const AnswerContext&, const ModelInfo& model,
          proto::EncodeResponse* out) {
  const Tokenized& from = *result.tokenized;
  const auto prompt = std::ranges::find(model.prompts.all, result.prompt_name, &Prompt::name);
  const bool prompted = !result.prompt_name.empty() && prompt != model.prompts.all.end();
  const std::string text = std::string(prompted ? prompt->text : "").append(result.texts.front());
  for (size_t i = 0; i < from.ids.size(); ++i) {
    proto::SimpleToken* const token = out->add_tokens();
    token->set_id(static_cast<uint32_t>(from.ids[i]));
    token->set_special(from.special[i]);
    if (from.special[i]) {
      token->set_text(from.tokens[i]);
      continue;
    }
    const auto [begin, end] = from.bytes[i];
    token->set_start(static_cast<uint32_t>(begin));
    token->set_stop(static_cast<uint32_t>(end));
    token->set_text(text.substr(begin, end - begin));
  }
}

void Fill(const EncodeResult& result, const AnswerContext&, const ModelInfo&,
          proto::DecodeResponse* out) {
  out->set_text(result.tokenized->texts.front());
}

void Fill(const EncodeResult& result, int64_t characters, double total_us, proto::Metadata* out) {
  const Timing& timing = result.report.timing;
  const auto& counts = result.token_counts;
  out->set_compute_chars(
      static_cast<uint32_t>(std::min<int64_t>(characters, std::numeric_limits<uint32_t>::max())));
  out->set_compute_tokens(
      static_cast<uint32_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0})));
  out->set_total_time_ns(Nanoseconds(total_us));
  out->set_tokenization_time_ns(Nanoseconds(timing.decode_us));
  out->set_queue_time_ns(Nanoseconds(timing.queue_us));
  out->set_inference_time_ns(
      Nanoseconds(timing.copy_in_us + timing.compute_us + timing.copy_out_us));
}

Headers HeadersOf(const proto::Metadata& metadata) {
  const auto milliseconds = [](uint64_t ns) { return std::to_string(ns / 1'000'000); };
  return {{"x-compute-type", "gpu+optimized"},  // whatever the device, as the original has it
          {"x-compute-time", milliseconds(metadata.total_time_ns())},
          {"x-compute-characters", std::to_string(metadata.compute_chars())},
          {"x-compute-tokens", std::to_string(metadata.compute_tokens())},
          {"x-total-time", milliseconds(metadata.total_time_ns())},
          {"x-tokenization-time", milliseconds(metadata.tokenization_time_ns())},
          {"x-queue-time", milliseconds(metadata.queue_time_ns())},
          {"x-inference-time", milliseconds(metadata.inference_time_ns())}};
}

}  // namespace castor::server::tei

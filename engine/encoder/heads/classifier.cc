#include "engine/encoder/heads/classifier.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/heads/dense.h"

namespace castor::encoder {
namespace {

constexpr int64_t kMostLabels = 1 << 20;

// id2label, whose keys are the columns; else as many LABEL_i as num_labels says.
std::vector<std::string> ReadLabels(ConfigReader& config) {
  const auto named = static_cast<int64_t>(config.Count("id2label"));
  const int64_t count = config.Int("num_labels", named > 0 ? named : 2, 1, kMostLabels);
  if (named > 0 && count != named) {
    config.Fail("num_labels", "contradicts id2label, which names " + std::to_string(named));
  }
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count && config.status().ok(); ++i) {
    const std::string key = "id2label." + std::to_string(i);
    if (named > 0 && !config.Has(key)) config.Fail(key, "is missing");
    labels.push_back(config.Label(key, "LABEL_" + std::to_string(i)));
  }
  return labels;
}

std::optional<Scoring> ParseActivationName(std::string_view name) {
  if (!name.starts_with("torch.nn.")) return std::nullopt;
  if (name.ends_with(".Sigmoid")) return Scoring::kSigmoid;
  if (name.ends_with(".Identity")) return Scoring::kIdentity;
  return std::nullopt;
}

// sentence-transformers' CrossEncoder names its activation in config.json, with or without a
// modules.json.
std::optional<Scoring> ReadActivationName(ConfigReader& config) {
  for (const char* key :
       {"sentence_transformers.activation_fn", "sbert_ce_default_activation_function"}) {
    const std::string name = config.String(key, "");
    if (name.empty()) continue;
    if (const auto scoring = ParseActivationName(name)) return scoring;
    config.Fail(key, "\"" + name + "\" is not supported; torch.nn's Sigmoid and Identity are");
  }
  return std::nullopt;
}

Scoring ReadScoring(ConfigReader& config, size_t labels,
                    const std::optional<std::string>& cross_encoder) {
  if (cross_encoder.has_value()) {
    if (const auto scoring = ParseActivationName(*cross_encoder)) return *scoring;
  }
  if (const std::optional<Scoring> scoring = ReadActivationName(config)) return *scoring;
  if (cross_encoder.has_value()) return labels == 1 ? Scoring::kSigmoid : Scoring::kIdentity;
  // As in transformers' pipelines. A regression's logits are its scores.
  const std::string type = config.String("problem_type", "");
  if (type == "regression") return Scoring::kIdentity;
  if (type == "multi_label_classification") return Scoring::kSigmoid;
  if (!type.empty() && type != "single_label_classification") {
    config.Fail("problem_type", "\"" + type + "\" is not known");
  }
  return labels == 1 ? Scoring::kSigmoid : Scoring::kSoftmax;
}

// The names of poolings, by the pooling of classes that the key does not name.
struct PoolingName {
  ClassifierPooling by_default;
  std::string_view name;
  ClassifierPooling pooling;
};
constexpr PoolingName kPoolingNames[] = {
    {ClassifierPooling::kFirst, "cls", ClassifierPooling::kFirst},
    {ClassifierPooling::kFirst, "mean", ClassifierPooling::kMean},
    {ClassifierPooling::kLate, "bos", ClassifierPooling::kFirst},
    {ClassifierPooling::kLate, "mean", ClassifierPooling::kMean},
    {ClassifierPooling::kLate, "late", ClassifierPooling::kLate},
    {ClassifierPooling::kMean, "avg", ClassifierPooling::kMean},
    {ClassifierPooling::kMean, "cls", ClassifierPooling::kFirst},
    {ClassifierPooling::kMean, "last", ClassifierPooling::kLast},
};

ClassifierPooling ReadClassifierPooling(ConfigReader& config, const ClassifierNames& names) {
  if (names.pooling_key.empty() || !config.Has(names.pooling_key)) return names.pooling;
  const std::string name = config.String(names.pooling_key, "");
  std::string known;
  for (const PoolingName& row : kPoolingNames) {
    if (row.by_default != names.pooling) continue;
    if (row.name == name) return row.pooling;
    absl::StrAppend(&known, known.empty() ? "" : ", ", "\"", std::string(row.name), "\"");
  }
  config.Fail(names.pooling_key, "\"" + name + "\" is not known; " + known + " are");
  return names.pooling;
}

Pooling PoolingOf(ClassifierPooling pooling) {
  switch (pooling) {
    case ClassifierPooling::kFirst:
      return Pooling::kCls;
    case ClassifierPooling::kLast:
      return Pooling::kLastToken;
    case ClassifierPooling::kMean:
    case ClassifierPooling::kLate:
      break;
  }
  return Pooling::kMean;
}

// Logits that a step turns into scores; at least one row.
constexpr int64_t kScoresOfAStep = 1 << 16;

at::Tensor ScoresOf(Scoring scoring, const at::Tensor& logits) {
  switch (scoring) {
    case Scoring::kSoftmax:
      return at::softmax(logits, /*dim=*/1);
    case Scoring::kSigmoid:
      // LibTorch rounds the last elements of a vector differently. Double precision hides that.
      return at::sigmoid(logits.to(at::kDouble));
    case Scoring::kIdentity:
      return logits;
  }
  return logits;
}

}  // namespace

bool IsServedActivation(std::string_view name) { return ParseActivationName(name).has_value(); }

ClassifierConfig ReadClassifier(ConfigReader& config, bool tokens, const ClassifierNames& names,
                                const std::optional<std::string>& cross_encoder) {
  ClassifierConfig read{.labels = ReadLabels(config), .tokens = tokens};
  read.scoring = ReadScoring(config, read.labels.size(), cross_encoder);
  if (tokens) read.scoring = Scoring::kSoftmax;  // transformers' pipeline ignores the keys
  read.pooling = ReadClassifierPooling(config, names);
  if (!names.temperature_key.empty()) {
    read.temperature = config.Double(names.temperature_key, 1, 1e-6, 1e6);
  }
  // Classes whose pooling has a name take the last token that is not masked, whatever its id.
  if (names.pooling == ClassifierPooling::kLast && !config.IsNull("pad_token_id")) {
    read.padding = config.Int("pad_token_id", 0, 0, INT32_MAX);
  }
  return read;
}

ClassifierConfig ReadLogitScore(ConfigReader& config, const std::string& cross_encoder) {
  return {.labels = {"LABEL_0"},
          .scoring = ReadScoring(config, /*labels=*/1, cross_encoder),
          .pooling = ClassifierPooling::kLast};
}

ClassifierHead::ClassifierHead(ClassifierConfig config, HeadTransform transform, Linear out)
    : config_(std::move(config)),
      transform_(std::move(transform)),
      out_(std::move(out)),
      rows_(Pooling::kMean, /*normalize=*/false),
      info_(rows_.info()) {
  info_.outputs = {EncodeOutput::kScores, EncodeOutput::kLogits, EncodeOutput::kPooled,
                   EncodeOutput::kTokenEmbeddings};
  info_.labels = config_.labels;
  info_.token_labels = config_.tokens;
}

HeadActivations ClassifierHead::activations(int64_t hidden, DType dtype) const {
  using kernels::Count;
  constexpr int64_t kFloat = sizeof(float);
  const Count row = Count(hidden) * kFloat;
  const Count labels = Count(static_cast<int64_t>(config_.labels.size())) * kFloat;
  HeadActivations bytes = rows_.activations(hidden, dtype);
  // If any item of the batch wants labels, logits and scores are computed for all items.
  bytes.labels = bytes.pooled;
  for (RowBytes* wanted : {&bytes.pooled, &bytes.tokens, &bytes.labels}) {
    if (config_.tokens || config_.pooling == ClassifierPooling::kLate) {
      wanted->token += 2 * labels;
    }
    if (!config_.tokens) {  // the pooled row and its float32 copy
      wanted->sequence += 2 * row + 2 * labels + 4 * int64_t{sizeof(int64_t)};
    }
  }
  // The transform's step needs its rows in float32, its result, and that normalised.
  bytes.batch = kMostHeadRows * (4 * row + labels);
  // The scores' step needs its logits in double precision and their scores, at another time.
  bytes.batch = std::max(bytes.batch, 4 * labels + 4 * kScoresOfAStep * kFloat);
  return bytes;
}

at::Tensor ClassifierHead::RowsOfSequences(const HeadInputs& in) const {
  if (config_.pooling != ClassifierPooling::kLast || !config_.padding.has_value()) {
    return Pool(PoolingOf(config_.pooling), in.rows, in.offsets);
  }
  std::vector<int64_t> which;
  for (size_t i = 0; i < in.batch.items.size(); ++i) {
    const BatchItem& item = in.batch.items[i];
    if (item.repeats) continue;
    for (int64_t s = 0; s < item.sequences(); ++s) {
      const int32_t begin = item.cu_seqlens[s];
      int32_t last = item.cu_seqlens[s + 1] - 1;
      while (!item.ids.empty() && last > begin && item.ids[last] == *config_.padding) --last;
      which.push_back(in.packing.first_token[i] + last);
    }
  }
  const at::Tensor rows = at::tensor(which, at::kLong).to(in.rows.device());
  return at::index_select(in.rows, 0, rows);
}

absl::StatusOr<at::Tensor> ClassifierHead::Logits(const HeadInputs& in) const {
  const bool late = !config_.tokens && config_.pooling == ClassifierPooling::kLate;
  const bool of_tokens = config_.tokens || late;
  const at::Tensor rows = of_tokens ? in.rows : RowsOfSequences(in);
  at::Tensor logits = at::empty({rows.size(0), out_.out()}, rows.options().dtype(at::kFloat));
  const int64_t step = HeadRows(rows, transform_.elements() + out_.elements());
  absl::Status done = InSteps(rows.size(0), step, in.control, [&](int64_t first, int64_t count) {
    const at::Tensor part = rows.narrow(0, first, count).to(at::kFloat);
    logits.narrow(0, first, count).copy_(out_(transform_(part)));
  });
  if (!done.ok()) return done;
  if (config_.temperature != 1) logits.div_(config_.temperature);
  return late ? Pool(Pooling::kMean, logits, in.offsets) : logits;
}

absl::StatusOr<at::Tensor> ClassifierHead::Scores(const at::Tensor& logits,
                                                  RunControl& control) const {
  if (config_.scoring == Scoring::kIdentity) return logits;
  at::Tensor scores = at::empty_like(logits);
  const int64_t step = std::max<int64_t>(1, kScoresOfAStep / logits.size(1));
  absl::Status done = InSteps(logits.size(0), step, control, [&](int64_t first, int64_t count) {
    scores.narrow(0, first, count).copy_(ScoresOf(config_.scoring, logits.narrow(0, first, count)));
  });
  if (!done.ok()) return done;
  return scores;
}

absl::StatusOr<std::vector<at::Tensor>> ClassifierHead::ReadOut(const HeadInputs& in) const {
  absl::StatusOr<std::vector<at::Tensor>> outputs = rows_.ReadOut(in);
  if (!outputs.ok()) return outputs;
  at::Tensor logits, scores;
  for (size_t i = 0; i < in.batch.items.size(); ++i) {
    const BatchItem& item = in.batch.items[i];
    if (!item.labels()) continue;
    if (!logits.defined()) {
      absl::StatusOr<at::Tensor> computed = Logits(in);
      if (!computed.ok()) return computed.status();
      logits = *std::move(computed);
    }
    const bool scored = item.output_kind == EncodeOutput::kScores;
    if (scored && !scores.defined()) {
      absl::StatusOr<at::Tensor> computed = Scores(logits, in.control);
      if (!computed.ok()) return computed.status();
      scores = *std::move(computed);
    }
    const int64_t first = config_.tokens ? in.packing.first_token[i] : in.packing.first_sequence[i];
    (*outputs)[i] = (scored ? scores : logits).narrow(0, first, item.output_rows());
  }
  return outputs;
}

}  // namespace castor::encoder

#include "engine/encoder/network/cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "engine/attention/cast/cast_layout.h"
#include "engine/encoder/text/output_shape.h"
#include "engine/encoder/text/spans.h"

namespace castor::encoder {
namespace {

double& At(CostTerms& terms, CostTerm term) { return terms[static_cast<size_t>(term)]; }
double At(const CostTerms& terms, CostTerm term) { return terms[static_cast<size_t>(term)]; }

double PartOf(const CostTerms& terms, const CostTerms& prices, CostTerm term) {
  const auto t = static_cast<size_t>(term);
  return terms[t] * prices[t];
}

// How many tokens a query of a CAST layer computes with: members of its clusters, surrogates that
// its row is compared with as a query and as a key, and summaries.
double SeenTokensOfCast(const attention::Spec& spec, double tokens) {
  const auto clusters = static_cast<double>(spec.surrogates);
  const auto size =
      static_cast<double>(attention::CastClusterSize(spec, static_cast<int64_t>(tokens)));
  return clusters * size * size / std::max(1.0, tokens) + 3 * clusters;
}

// How many tokens a query of a sequence of `tokens` computes with, on average over the layers.
double SeenTokens(std::span<const AttentionLayers> layers, double tokens) {
  constexpr double kPanel = 48;  // queries that share the keys of their windows
  double all = 0;
  double seen = 0;
  for (const AttentionLayers& alike : layers) {
    const auto count = static_cast<double>(alike.layers);
    const std::optional<int64_t> window = alike.spec.window;
    all += count;
    if (std::holds_alternative<Cast>(alike.spec.kernel)) {
      seen += count * SeenTokensOfCast(alike.spec, tokens);
      continue;
    }
    seen += count * (window ? std::min(tokens, 2 * static_cast<double>(*window) + kPanel) : tokens);
  }
  return all > 0 ? seen / all : tokens;
}

// Of a span's rows, those that pooling reads.
double RowsRead(Pooling pooling, double rows) {
  const bool one = pooling == Pooling::kCls || pooling == Pooling::kLastToken;
  return one ? std::min(1.0, rows) : rows;
}

// Of output rows that are as wide as these.
double WideElements(EncodeOutput output, const ModelInfo& info, double sequences, double tokens) {
  if (HasVectors(output)) return 0;
  return (PerToken(info, output) ? tokens : sequences) * static_cast<double>(WidthOf(info, output));
}

}  // namespace

double ReadOutElements(const EncodeRequest& request, const ModelInfo& info,
                       std::span<const int32_t> cu_seqlens) {
  constexpr double kCharacters = 4;  // a token's, in most languages at least
  const bool in_tokens = UnitOf(request) == Spans::Unit::kTokens;
  const Pooling pooling = request.pooling.value_or(info.pooling);
  double rows = 0;
  for (const Spans::Range& range : request.spans.ranges) {
    const auto units = static_cast<double>(range.end - range.begin);
    const auto s = static_cast<size_t>(range.sequence);
    rows += RowsRead(pooling, std::min(in_tokens ? units : units / kCharacters,
                                       static_cast<double>(cu_seqlens[s + 1] - cu_seqlens[s])));
  }
  return rows * static_cast<double>(info.hidden_size) +
         WideElements(OutputOf(request, info), info, static_cast<double>(cu_seqlens.size() - 1),
                      cu_seqlens.back());
}

double ReadOutElements(const BatchItem& item, const ModelInfo& info) {
  double rows = 0;
  for (const RowRange& range : item.spans) {
    rows += RowsRead(item.pooling, static_cast<double>(range.end - range.begin));
  }
  return rows * static_cast<double>(info.hidden_size) +
         WideElements(item.output_kind, info, static_cast<double>(item.sequences()),
                      static_cast<double>(item.tokens()));
}

double ReadOutUs(double elements, int workers) {
  constexpr double kOfOneCore = 4e3;  // elements in a microsecond
  constexpr double kOfAccelerator = 2e5;
  return elements / (workers > 0 ? kOfOneCore * workers : kOfAccelerator);
}

CostTerms CostTermsOf(std::span<const int32_t> cu_seqlens,
                      std::span<const AttentionLayers> layers) {
  constexpr double kLanes = 16;  // queries that kernels compute together
  constexpr double kThousand = 1e3;
  CostTerms terms{};
  At(terms, CostTerm::kLaunch) = 1;
  At(terms, CostTerm::kSequences) = static_cast<double>(cu_seqlens.size() - 1);
  At(terms, CostTerm::kTokens) = cu_seqlens.back();
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const double tokens = cu_seqlens[s + 1] - cu_seqlens[s];
    At(terms, CostTerm::kPairs) +=
        kLanes * std::ceil(tokens / kLanes) * SeenTokens(layers, tokens) / kThousand;
  }
  return terms;
}

double CostModel::batch_us(const CostTerms& terms) const {
  return PartOf(terms, prices, CostTerm::kLaunch);
}

double CostModel::rows_us(const CostTerms& terms) const {
  return PartOf(terms, prices, CostTerm::kSequences) + PartOf(terms, prices, CostTerm::kTokens);
}

double CostModel::pairs_us(const CostTerms& terms) const {
  return PartOf(terms, prices, CostTerm::kPairs);
}

std::optional<CostModel> FitCosts(std::span<const CostSample> samples, const CostModel& assumed) {
  // What an expectation counts beside a run: about as much as a run in which pairs take a seventh.
  constexpr double kExpectation = 0.15;
  if (samples.size() < kCostTerms) return std::nullopt;
  const double ratio = At(assumed.prices, CostTerm::kPairs) / At(assumed.prices, CostTerm::kTokens);
  std::vector<CostSample> fitted(samples.begin(), samples.end());
  for (CostSample& sample : fitted) {
    At(sample.terms, CostTerm::kTokens) +=
        ratio * std::exchange(At(sample.terms, CostTerm::kPairs), 0);
  }
  const double expected = ratio * At(FitRelative<kCostTerms>(fitted), CostTerm::kTokens);
  fitted.assign(samples.begin(), samples.end());
  if (expected > 0) {
    CostSample pairs = {.us = expected, .weight = kExpectation};
    At(pairs.terms, CostTerm::kPairs) = 1;
    fitted.push_back(pairs);
  }
  return CostModel{.prices = FitRelative<kCostTerms>(fitted), .measured = true};
}

CostModel AssumedCosts(const ModelInfo& info, int workers) {
  constexpr double kPerMicrosecond = 20e3;  // multiply-adds of one core
  constexpr double kScore = 16;             // of a pair of tokens, beside its products
  constexpr double kLaunchTokens = 8;       // what reading the weights takes, in tokens
  const double speed = kPerMicrosecond * std::max(1, workers);
  const auto hidden = static_cast<double>(info.hidden_size);
  const double embeddings = static_cast<double>(info.vocabulary_size) * hidden;
  const double weights = std::max(0.0, static_cast<double>(info.parameters) - embeddings);
  CostModel model;
  At(model.prices, CostTerm::kTokens) = (weights + hidden) / speed;
  At(model.prices, CostTerm::kLaunch) = 20 + kLaunchTokens * At(model.prices, CostTerm::kTokens);
  At(model.prices, CostTerm::kSequences) = 0.1 * info.layers * info.heads;
  At(model.prices, CostTerm::kPairs) =
      1e3 * info.layers * (2 * hidden + kScore * info.heads) / speed;
  return model;
}

}  // namespace castor::encoder

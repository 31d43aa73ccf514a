#include "engine/forecast/encoder_costs.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "engine/attention/cast/cast_layout.h"
#include "engine/encoder/text/output_types.h"
#include "engine/encoder/text/spans.h"

namespace castor {
namespace {

double& At(EncoderTerms& terms, EncoderTerm term) { return terms[static_cast<size_t>(term)]; }
double At(const EncoderTerms& terms, EncoderTerm term) { return terms[static_cast<size_t>(term)]; }

double PartOf(const EncoderTerms& terms, const EncoderTerms& prices, EncoderTerm term) {
  const auto t = static_cast<size_t>(term);
  return terms[t] * prices[t];
}

// The number of tokens that a query of a CAST layer computes with: members of its clusters, the
// surrogates that its row is compared with as a query and as a key, and summaries.
double SeenTokensOfCast(const attention::Spec& spec, double tokens) {
  const auto clusters = static_cast<double>(spec.surrogates);
  const auto size =
      static_cast<double>(attention::CastClusterSize(spec, static_cast<int64_t>(tokens)));
  return clusters * size * size / std::max(1.0, tokens) + 3 * clusters;
}

// The number of tokens that a query of a sequence of `tokens` computes with, averaged over the
// layers.
double SeenTokens(std::span<const encoder::AttentionLayers> layers, double tokens) {
  double all = 0;
  double seen = 0;
  for (const auto& [spec, layers_alike] : layers) {
    const auto count = static_cast<double>(layers_alike);
    const bool cast = std::holds_alternative<Cast>(spec.kernel);
    all += count;
    seen += count * (cast ? SeenTokensOfCast(spec, tokens)
                          : SeenKeys(spec, nullptr, tokens, tokens, kPanel / 2));
  }
  return all > 0 ? seen / all : tokens;
}

// The number of a span's rows that pooling reads.
double RowsRead(Pooling pooling, double rows) {
  const bool one = pooling == Pooling::kCls || pooling == Pooling::kLastToken;
  return one ? std::min(1.0, rows) : rows;
}

// The elements of output rows of labels, logits or a vocabulary, which a head computes one by one.
double WideElements(EncodeOutput output, const ModelInfo& info, double sequences, double tokens) {
  if (encoder::HasVectors(output)) return 0;
  return (encoder::PerToken(info, output) ? tokens : sequences) *
         static_cast<double>(encoder::WidthOf(info, output));
}

}  // namespace

double ReadOutUs(const EncodeRequest& request, const ModelInfo& info,
                 std::span<const int32_t> cu_seqlens, int workers) {
  constexpr double kCharacters = 4;   // characters of a token, in most languages at least
  constexpr double kOfOneCore = 4e3;  // elements in a microsecond
  constexpr double kProducts = 10;    // multiply-adds in the time of one element
  constexpr double kOfAccelerator = 2e5;
  const bool in_tokens = encoder::UnitOf(request) == Spans::Unit::kTokens;
  const Pooling pooling = request.pooling.value_or(info.pooling);
  double rows = 0;
  for (const Spans::Range& range : request.spans.ranges) {
    const auto units = static_cast<double>(range.end - range.begin);
    const auto s = static_cast<size_t>(range.sequence);
    rows += RowsRead(pooling, std::min(in_tokens ? units : units / kCharacters,
                                       static_cast<double>(cu_seqlens[s + 1] - cu_seqlens[s])));
  }
  double elements = rows * static_cast<double>(info.hidden_size);
  if (request.output == EncodeOutput::kMaxSim) {
    const auto width = static_cast<double>(encoder::WidthOf(info, EncodeOutput::kTokenEmbeddings));
    elements += static_cast<double>(cu_seqlens[1]) * (cu_seqlens.back() - cu_seqlens[1]) *
                (width / kProducts + 1);
  }
  for (const EncodeOutput output : encoder::OutputsOf(request, info)) {
    elements +=
        WideElements(output, info, static_cast<double>(cu_seqlens.size() - 1), cu_seqlens.back());
  }
  return elements / (workers > 0 ? kOfOneCore * workers : kOfAccelerator);
}

EncoderTerms EncoderTermsOf(std::span<const int32_t> cu_seqlens,
                            std::span<const encoder::AttentionLayers> layers) {
  constexpr double kThousand = 1e3;
  EncoderTerms terms{};
  At(terms, EncoderTerm::kLaunch) = 1;
  At(terms, EncoderTerm::kSequences) = static_cast<double>(cu_seqlens.size() - 1);
  At(terms, EncoderTerm::kTokens) = cu_seqlens.back();
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const double tokens = cu_seqlens[s + 1] - cu_seqlens[s];
    At(terms, EncoderTerm::kPairs) += InLanes(tokens) * SeenTokens(layers, tokens) / kThousand;
  }
  return terms;
}

PredictedTime TimeOf(const EncoderTerms& terms, const EncoderCosts& prices, bool with_pairs) {
  const double batch_us = PartOf(terms, prices, EncoderTerm::kLaunch);
  const double pairs_us = PartOf(terms, prices, EncoderTerm::kPairs);
  const double own_us = Dot(terms, prices) - batch_us - pairs_us;
  return {.batch_us = batch_us, .own_us = own_us + (with_pairs ? pairs_us : 0)};
}

std::optional<EncoderCosts> FitEncoder(std::span<const EncoderSample> samples,
                                       const EncoderCosts& assumed) {
  // The weight of the prior: about that of a run in which pairs take a seventh of the time.
  constexpr double kPriorWeight = 0.15;
  if (samples.size() < kEncoderTerms) return std::nullopt;
  const double ratio = At(assumed, EncoderTerm::kPairs) / At(assumed, EncoderTerm::kTokens);
  std::vector<EncoderSample> fitted(samples.begin(), samples.end());
  for (EncoderSample& sample : fitted) {
    At(sample.terms, EncoderTerm::kTokens) +=
        ratio * std::exchange(At(sample.terms, EncoderTerm::kPairs), 0);
  }
  const double prior_us = ratio * At(FitRelative<kEncoderTerms>(fitted), EncoderTerm::kTokens);
  fitted.assign(samples.begin(), samples.end());
  if (prior_us > 0) {
    EncoderSample pairs = {.us = prior_us, .weight = kPriorWeight};
    At(pairs.terms, EncoderTerm::kPairs) = 1;
    fitted.push_back(pairs);
  }
  return FitRelative<kEncoderTerms>(fitted);
}

EncoderCosts AssumedCosts(const ModelInfo& info, int workers) {
  constexpr double kPerMicrosecond = 20e3;  // multiply-adds of one core
  constexpr double kScore = 16;             // for a pair's score, in addition to its products
  constexpr double kLaunchTokens = 8;       // the cost of reading the weights, in tokens
  const double speed = kPerMicrosecond * std::max(1, workers);
  const auto hidden = static_cast<double>(info.hidden_size);
  const double embeddings = static_cast<double>(info.vocabulary_size) * hidden;
  const double weights = std::max(0.0, static_cast<double>(info.parameters) - embeddings);
  EncoderCosts prices{};
  At(prices, EncoderTerm::kTokens) = (weights + hidden) / speed;
  At(prices, EncoderTerm::kLaunch) = 20 + kLaunchTokens * At(prices, EncoderTerm::kTokens);
  At(prices, EncoderTerm::kSequences) = 0.1 * info.layers * info.heads;
  At(prices, EncoderTerm::kPairs) = 1e3 * info.layers * (2 * hidden + kScore * info.heads) / speed;
  return prices;
}

}  // namespace castor

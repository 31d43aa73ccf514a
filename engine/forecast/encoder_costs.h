// The cost of a batch of an encoder on the device that loaded it: four terms, each with a price
// that was fitted to the model's own first runs.
//
// Pure functions and plain numbers; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "engine/encoder/layers/attention_layers.h"
#include "engine/engine.h"
#include "engine/forecast/cost_model.h"
#include "engine/forecast/relative_fit.h"
#include "engine/ledger/device_memory.h"
#include "engine/request.h"

namespace castor {

enum class EncoderTerm {
  kLaunch,     // 1 per batch: also reads the weights once, however few rows there are
  kSequences,  // with their heads in every layer
  kTokens,     // work on single rows: projections, norms, activations
  kPairs,      // thousands of pairs of tokens that attend to each other in one layer; in a layer of
               // CAST also pairs of tokens and surrogates
};
inline constexpr size_t kEncoderTerms = 4;
using EncoderTerms = std::array<double, kEncoderTerms>;
using EncoderSample = RelativeSample<kEncoderTerms>;

using EncoderCosts = EncoderTerms;  // microseconds per unit, with the model's own kernel

// The prices of measured models, by LoadedModel::number.
using EncoderPrices = std::map<uint64_t, EncoderCosts>;

// The terms of a batch of sequences with these offsets, averaged over these layers.
EncoderTerms EncoderTermsOf(std::span<const int32_t> cu_seqlens,
                            std::span<const encoder::AttentionLayers> layers);

// The time of a batch; without the pairs if another kernel computes them.
PredictedTime TimeOf(const EncoderTerms& terms, const EncoderCosts& prices, bool with_pairs);

// The time of a head's work beyond the rows of tokens, at an assumed speed of `workers` (a device's
// DeviceInfo::threads): the rows of spans, which may overlap, rows as wide as a vocabulary, labels
// of tokens, and products of rows. The offsets are those of the request's sequences, actual or
// expected. Requires the request's input.
double ReadOutUs(const EncodeRequest& request, const ModelInfo& info,
                 std::span<const int32_t> cu_seqlens, int workers);

// Prices fitted to runs of the model; nullopt if there are too few to tell the terms apart. In the
// short runs of a start pairs take less time than runs vary by, whereas a long text is mostly
// pairs. So the prior for the price of a pair is its ratio to a token's in `assumed`, which the
// runs correct as far as they have information about it.
std::optional<EncoderCosts> FitEncoder(std::span<const EncoderSample> samples,
                                       const EncoderCosts& assumed);

// Prices for a model that was never measured, from its size and an assumed speed of `workers`.
EncoderCosts AssumedCosts(const ModelInfo& info, int workers);

}  // namespace castor

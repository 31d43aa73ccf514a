// What a batch of an encoder costs on the device that loaded it: a few terms, each with a price
// that was fitted to the model's own first runs.
//
// Pure functions and plain numbers; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/attention/cost/relative_fit.h"
#include "engine/encoder/layers/attention_layers.h"
#include "engine/encoder/network/batch.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

enum class CostTerm {
  kLaunch,     // 1: also the weights, which are read once however few rows there are
  kSequences,  // and their heads in every layer
  kTokens,     // what treats each row by itself: projections, norms, activations
  kPairs,      // thousands of pairs of tokens that attend to each other, in one layer; in one of
               // CAST also of tokens and surrogates
};
inline constexpr size_t kCostTerms = 4;
using CostTerms = std::array<double, kCostTerms>;
using CostSample = RelativeSample<kCostTerms>;

// Of sequences with these offsets, on average over these layers. None: layers that see all.
CostTerms CostTermsOf(std::span<const int32_t> cu_seqlens,
                      std::span<const AttentionLayers> layers = {});

// What a head goes through beside the rows that the tokens make, in elements: the rows of spans,
// which may overlap, rows as wide as a vocabulary, and labels of tokens. Of a request whose
// sequences have these offsets, or are expected to, its spans among them; and of a staged one.
double ReadOutElements(const EncodeRequest& request, const ModelInfo& info,
                       std::span<const int32_t> cu_seqlens);
double ReadOutElements(const BatchItem& item, const ModelInfo& info);

// What that takes, at an assumed speed of `workers`, a device's DeviceInfo::threads.
double ReadOutUs(double elements, int workers);

struct CostModel {
  CostTerms prices{};     // microseconds per unit, with the model's own kernel
  bool measured = false;  // not assumed

  double batch_us(const CostTerms& terms) const;  // what a batch takes whoever is in it
  double rows_us(const CostTerms& terms) const;   // of the rows, without attention
  double pairs_us(const CostTerms& terms) const;  // of the model's own attention
};

// Prices fitted to runs of the model; nullopt if there are too few to tell the terms apart. In the
// short runs of a start, pairs take less time than runs vary by, and a long text is nothing but
// pairs. So a pair is expected to cost as many tokens as it does in `assumed`, and runs correct
// that by as much as they say about it.
std::optional<CostModel> FitCosts(std::span<const CostSample> samples, const CostModel& assumed);

// Prices for a model that was never measured, from its size and an assumed speed of `workers`.
CostModel AssumedCosts(const ModelInfo& info, int workers);

}  // namespace castor::encoder

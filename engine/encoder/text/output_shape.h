// What a request's output is: its kind, how long its rows are, whether each token has one. From
// what the model says about itself.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

// What the request names, else the model's own; at least one. Views of either.
std::span<const EncodeOutput> OutputsOf(const EncodeRequest& request, const ModelInfo& info);

// Elements of a row that is not cut.
int64_t WidthOf(const ModelInfo& info, EncodeOutput output);

// Elements of a row of the answer: as the request says, else as the model does.
int64_t DimensionsOf(const EncodeRequest& request, const ModelInfo& info, EncodeOutput output);

// A row for each token, not for each sequence.
bool PerToken(const ModelInfo& info, EncodeOutput output);

bool Pools(std::span<const EncodeOutput> outputs);

// kPooled and kTokenEmbeddings: rows that can be cut and normalised.
bool HasVectors(EncodeOutput output);

// As on the wire: "POOLED".
std::string_view OutputName(EncodeOutput output);

// "SCORES, LOGITS": for messages.
std::string NamesOfOutputs(const ModelInfo& info);

}  // namespace castor::encoder

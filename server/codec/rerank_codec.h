// Rerank: its messages from and to bytes, and the order of its documents. To the engine it is a
// request for the logits and scores of text pairs; or, of a late-interaction model, for MaxSim.
//
// Any thread may call the functions; the only argument that they modify is `out`.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/codec/encoder_codec.h"
#include "server/codec/messages.h"

namespace castor::server {

// The part of the request that its answer needs.
struct Ranking {
  bool late_interaction = false;
  int32_t top_n = 0;  // 0: all
};

struct DecodedRerank : DecodedEncode {
  Ranking ranking;
};

// Whether the model is a cross-encoder: it has one logit for a pair of texts.
bool ScoresPairs(const ModelInfo& model);

// Whether it is one, or has late interaction.
bool CanRerank(const ModelInfo& model);

// Errors are those of DecodeEncodeRequest, and INVALID_FIELD at "model" of one that does not
// rerank.
absl::Status DecodeRerankRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                 std::span<const ModelInfo> models, DecodedRerank* out);

// The same of a message that another codec has read, but for its request_id. `out` holds what the
// message points into.
absl::Status ConvertRerankRequest(wire::RerankRequest from, std::span<const ModelInfo> models,
                                  DecodedRerank* out);

// A protocol's names for the texts of a request.
struct TextFields {
  std::string_view texts = "documents";  // or the texts that are ranked
  std::string_view query = "query";      // of a rerank; empty: there is none
};

// The engine's error with a protocol's own names. `submitted`: it came after Submit.
absl::Status RenameTextFields(const absl::Status& error, const TextFields& names,
                              bool late_interaction, bool submitted);

// Places in descending order of their logits, ties by place; NaN last.
std::vector<int32_t> RankByLogit(std::span<const float> logits);

// One of the engine's results, by the request's documents.
struct RerankScores {
  std::vector<float> logits;  // or MaxSim
  std::vector<float> scores;
};
RerankScores ScoresOf(const EncodeResult& result);

grpc::ByteBuffer EncodeRerankResponse(std::string_view request_id, EncodeResult result,
                                      const Ranking& ranking, double total_us);

}  // namespace castor::server

// Converts the requests of tei.v1 to the engine's, and the engine's results to answers. The
// overloads differ by message. Pure functions, which change only their last arguments.
//
// Convert runs on a gRPC thread before the engine's budgets are asked. Counts of elements were
// checked while the message was read (wire.h), so its work is linear in the message's bytes: the
// query of a Rerank is counted once, not for each text. Fill runs on a completion thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "server/tei/wire.h"
#include "tei/v1/tei.pb.h"

namespace castor::server::tei {

namespace proto = ::tei::v1;

// The part of the request that its answer needs.
struct AnswerContext {
  int64_t characters = 0;
  bool raw_scores = false;
};

struct Converted {
  EncodeRequest request;
  AnswerContext answer_context;
};

// The views in `out` point to the same bytes as those in `from`; the caller keeps these until the
// engine has its copy.
absl::Status Convert(wire::tei::EmbedRequest from, const ModelInfo& model, Converted* out);
absl::Status Convert(wire::tei::EmbedSparseRequest from, const ModelInfo& model, Converted* out);
absl::Status Convert(wire::tei::EmbedAllRequest from, const ModelInfo& model, Converted* out);
absl::Status Convert(wire::tei::PredictRequest from, const ModelInfo& model, Converted* out);
absl::Status Convert(wire::tei::PredictPairRequest from, const ModelInfo& model, Converted* out);
absl::Status Convert(wire::tei::RerankRequest from, const ModelInfo& model, Converted* out);
absl::Status Convert(wire::tei::EncodeRequest from, const ModelInfo& model, Converted* out);
absl::Status Convert(wire::tei::DecodeRequest from, const ModelInfo& model, Converted* out);

void Fill(const EncodeResult& result, const AnswerContext& context, const ModelInfo& model,
          proto::EmbedResponse* out);
void Fill(const EncodeResult& result, const AnswerContext& context, const ModelInfo& model,
          proto::EmbedSparseResponse* out);
void Fill(const EncodeResult& result, const AnswerContext& context, const ModelInfo& model,
          proto::EmbedAllResponse* out);
void Fill(const EncodeResult& result, const AnswerContext& context, const ModelInfo& model,
          proto::PredictResponse* out);
void Fill(const EncodeResult& result, const AnswerContext& context, const ModelInfo& model,
          proto::RerankResponse* out);
void Fill(const EncodeResult& result, const AnswerContext& context, const ModelInfo& model,
          proto::EncodeResponse* out);
void Fill(const EncodeResult& result, const AnswerContext& context, const ModelInfo& model,
          proto::DecodeResponse* out);

void Fill(const EncodeResult& result, int64_t characters, double total_us, proto::Metadata* out);

// The metadata as headers, for the answer's initial metadata.
using Headers = std::vector<std::pair<std::string, std::string>>;
Headers HeadersOf(const proto::Metadata& metadata);

}  // namespace castor::server::tei

// What each RPC of tei.v1 asks of the engine, and how the engine's result answers it. The overloads
// differ by message. Pure functions, which change only their last arguments.
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

// What the answer needs of its request.
struct AnswerContext {
  int64_t characters = 0;
  bool raw_scores = false;
};

struct Converted {
  EncodeRequest request;
  AnswerContext answer_context;
};

// `out` points into what `from` points into.
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

// The same for the answer's initial metadata.
using Headers = std::vector<std::pair<std::string, std::string>>;
Headers HeadersOf(const proto::Metadata& metadata);

// The engine's error in the protocol's words and with its names of fields. `submitted`: it came
// after Submit. `reranks`: the request has `query` and `texts`.
absl::Status RenameFields(const absl::Status& error, bool submitted, bool reranks);

}  // namespace castor::server::tei

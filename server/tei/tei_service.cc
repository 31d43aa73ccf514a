#include "server/tei/tei_service.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/base/machine.h"
#include "server/codec/rerank_codec.h"
#include "server/services/engine_call.h"
#include "server/services/engine_request.h"
#include "server/services/engine_stream.h"
#include "server/services/typed_call.h"
#include "server/version.h"

namespace castor::server::tei {
namespace {

// All RerankStream calls together may hold this fraction of the engine's byte budget.
constexpr int64_t kShareOfBytes = 16;

// The overhead of holding one text, in bytes.
constexpr int64_t kBytesPerText = 128;

proto::ModelType TypeOf(const ModelInfo& model) {
  return ScoresPairs(model)  ? proto::MODEL_TYPE_RERANKER
         : Classifies(model) ? proto::MODEL_TYPE_CLASSIFIER
                             : proto::MODEL_TYPE_EMBEDDING;
}

void Fill(const EngineOptions& options, const ModelInfo& model, proto::InfoResponse* out) {
  out->set_version(std::string(Version()));
  out->set_sha(std::string(GitCommit()));
  out->set_model_id(model.name);
  out->set_model_dtype(model.int8.has_value()            ? "int8"
                       : model.dtype == DType::kBFloat16 ? "bfloat16"
                                                         : "float32");
  out->set_model_type(TypeOf(model));
  out->set_max_concurrent_requests(static_cast<uint32_t>(options.max_queued_requests));
  out->set_max_input_length(static_cast<uint32_t>(model.max_tokens));
  out->set_max_batch_tokens(static_cast<uint32_t>(options.max_batch_tokens));
  out->set_max_batch_requests(static_cast<uint32_t>(options.max_batch_requests));
  out->set_max_client_batch_size(static_cast<uint32_t>(options.max_sequences));
  out->set_tokenization_workers(static_cast<uint32_t>(
      options.cpu_threads != 0 ? options.cpu_threads : AvailableProcessors()));
}

}  // namespace

absl::Status RerankStreamProtocol::Add(const grpc::ByteBuffer& part) {
  proto::RerankStreamRequest text;
  if (absl::Status s = ParseMessage(part, &text, kMaxMessageBytes); !s.ok()) return s;
  const auto texts = static_cast<int64_t>(queries_.size());
  if (texts == gathering_.max_texts) {
    return InvalidField("text", "comes after " + std::to_string(texts) +
                                    " others; no more are allowed in one request");
  }
  const auto bytes = static_cast<int64_t>(part.Length()) + kBytesPerText;
  bytes_ += bytes;
  const int64_t all = gathering_.bytes += bytes;
  if (bytes_ > static_cast<int64_t>(kMaxMessageBytes)) {
    return MakeError(Reason::kTooLarge, "the texts are more than " +
                                            std::to_string(kMaxMessageBytes) + " bytes together");
  }
  if (all > gathering_.max_bytes) {
    return MakeError(Reason::kQueueFull, "too many texts wait for the rest of their requests");
  }
  if (texts == 0) {
    gathered_.set_truncate(text.truncate());
    gathered_.set_raw_scores(text.raw_scores());
    gathered_.set_return_text(text.return_text());
    gathered_.set_truncation_direction(text.truncation_direction());
  }
  queries_.push_back(std::move(*text.mutable_query()));
  gathered_.add_texts(std::move(*text.mutable_text()));
  return absl::OkStatus();
}

absl::Status RerankStreamProtocol::Decode(const grpc::ByteBuffer&, TenantRegions,
                                          Decoded* decoded) {
  if (!choice_.error.ok()) return choice_.error;
  decoded->request.model = model().name;
  return Convert(gathered_, {queries_.begin(), queries_.end()}, model(), &decoded->request,
                 &decoded->asked);
}

// An RPC of one request, and its stream.
template <typename Request, typename Response>
void TeiService::Add(const char* path, const char* stream_path) {
  using Engine = EngineRequest<Protocol<Request, Response>>;
  AddMethod(path, [this](Arrival call) {
    const Choice& choice = models_.Choose(*call.context);
    return EngineMethod<Engine>(services_, Method::kTei, choice)(std::move(call));
  });
  if (stream_path == nullptr) return;
  AddMethod(stream_path, [this](Arrival call) {
    const Choice& choice = models_.Choose(*call.context);
    return EngineStreamMethod<Engine>(services_, Method::kTei, choice)(std::move(call));
  });
}

void TeiService::AddInfo() {
  AddMethod("/tei.v1.Info/Info", [this](Arrival call) {
    const Choice& choice = models_.Choose(*call.context);
    return TypedMethod<proto::InfoRequest, proto::InfoResponse>(
        services_, [this, &choice](const Caller&, const auto&, proto::InfoResponse* out) {
          if (choice.error.ok()) Fill(services_.engine.options(), choice.model, out);
          return choice.error;
        })(std::move(call));
  });
}

TeiService::TeiService(const ServiceContext& services, const Models& models)
    : MessageService(services.authorizer),
      services_(services),
      models_(models),
      gathering_{.max_texts = services.engine.options().max_sequences,
                 .max_bytes = services.engine.options().max_queued_bytes / kShareOfBytes} {
  AddInfo();
  Add<proto::EmbedRequest, proto::EmbedResponse>("/tei.v1.Embed/Embed",
                                                 "/tei.v1.Embed/EmbedStream");
  Add<proto::EmbedSparseRequest, proto::EmbedSparseResponse>("/tei.v1.Embed/EmbedSparse",
                                                             "/tei.v1.Embed/EmbedSparseStream");
  Add<proto::EmbedAllRequest, proto::EmbedAllResponse>("/tei.v1.Embed/EmbedAll",
                                                       "/tei.v1.Embed/EmbedAllStream");
  Add<proto::PredictRequest, proto::PredictResponse>("/tei.v1.Predict/Predict",
                                                     "/tei.v1.Predict/PredictStream");
  Add<proto::PredictPairRequest, proto::PredictResponse>("/tei.v1.Predict/PredictPair",
                                                         "/tei.v1.Predict/PredictPairStream");
  Add<proto::RerankRequest, proto::RerankResponse>("/tei.v1.Rerank/Rerank", nullptr);
  AddMethod("/tei.v1.Rerank/RerankStream", [this](Arrival call) {
    const Choice& choice = models_.Choose(*call.context);
    return EngineMethod<EngineRequest<RerankStreamProtocol>>(services_, Method::kTei, choice,
                                                             gathering_)(std::move(call));
  });
  Add<proto::EncodeRequest, proto::EncodeResponse>("/tei.v1.Tokenize/Tokenize",
                                                   "/tei.v1.Tokenize/TokenizeStream");
  Add<proto::DecodeRequest, proto::DecodeResponse>("/tei.v1.Tokenize/Decode",
                                                   "/tei.v1.Tokenize/DecodeStream");
}

}  // namespace castor::server::tei

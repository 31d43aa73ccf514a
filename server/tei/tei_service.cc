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

// The overhead of holding one text, in bytes.
constexpr int64_t kBytesPerText = 128;

proto::ModelType TypeOf(const ModelInfo& model) {
  return ScoresPairs(model)  ? proto::MODEL_TYPE_RERANKER
         : Classifies(model) ? proto::MODEL_TYPE_CLASSIFIER
                             : proto::MODEL_TYPE_EMBEDDING;
}

}  // namespace

void Describe(const EngineOptions& options, const ModelInfo& model, proto::InfoResponse* info) {
  info->set_version(std::string(Version()));
  info->set_sha(std::string(GitCommit()));
  info->set_model_id(model.name);
  info->set_model_dtype(model.int8.has_value()            ? "int8"
                        : model.dtype == DType::kBFloat16 ? "bfloat16"
                                                          : "float32");
  info->set_model_type(TypeOf(model));
  info->set_max_concurrent_requests(static_cast<uint32_t>(options.max_queued_requests));
  info->set_max_input_length(static_cast<uint32_t>(model.max_tokens));
  info->set_max_batch_tokens(static_cast<uint32_t>(options.max_batch_tokens));
  info->set_max_batch_requests(static_cast<uint32_t>(options.max_batch_requests));
  info->set_max_client_batch_size(static_cast<uint32_t>(options.max_sequences));
  info->set_tokenization_workers(static_cast<uint32_t>(
      options.cpu_threads != 0 ? options.cpu_threads : AvailableProcessors()));
}

absl::Status RerankStreamProtocol::Add(const grpc::ByteBuffer& bytes, const std::string& holder) {
  SliceView slices;
  wire::tei::RerankRequest part;
  if (absl::Status s = Read(bytes, &slices, &part); !s.ok()) return s;
  wire::tei::RerankRequest& all = gathered_.message;
  const size_t texts = all.texts.size();
  if (static_cast<int64_t>(texts) == services_.engine.options().max_sequences) {
    return InvalidField("text", "comes after " + std::to_string(texts) +
                                    " others; no more are allowed in one request");
  }
  const std::string_view text = part.texts.empty() ? std::string_view() : part.texts.back();
  bytes_ += std::ssize(part.query) + std::ssize(text) + kBytesPerText;
  if (bytes_ > static_cast<int64_t>(kMaxMessageBytes)) {
    return MakeError(Reason::kTooLarge, "the texts are more than " +
                                            std::to_string(kMaxMessageBytes) + " bytes together");
  }
  held_.reset();  // before the larger share is reserved: both together could exceed the quota
  absl::StatusOr<std::shared_ptr<void>> held = services_.engine.Reserve(holder, bytes_);
  if (!held.ok()) return held.status();
  held_ = *std::move(held);
  if (texts == 0) {
    all.truncate = part.truncate;
    all.raw_scores = part.raw_scores;
    all.return_text = part.return_text;
    all.truncation_direction = part.truncation_direction;
  }
  const std::string_view copy = gathered_.copies.emplace_back(part.query).append(text);
  all.queries.push_back(copy.substr(0, part.query.size()));
  all.texts.push_back(copy.substr(part.query.size()));
  return absl::OkStatus();
}

absl::Status RerankStreamProtocol::Decode(const grpc::ByteBuffer&, TenantRegions,
                                          Decoded* decoded) {
  held_.reset();  // from here on admission counts it like other requests
  if (absl::Status chosen = Choose(); !chosen.ok()) return chosen;
  *decoded = std::move(gathered_);
  return Ask(decoded);
}

// Adds the RPC for one request, and its stream.
template <typename Request, typename Response>
void TeiService::Add(const char* path, const char* stream_path) {
  using Engine = EngineRequest<Protocol<Request, Response>>;
  AddMethod(path, [this](IncomingCall incoming) {
    const std::string named = Models::NamedBy(GrpcCall(incoming.context));
    return EngineMethod<Engine>(services_, Method::kTei, models_, named,
                                services_)(std::move(incoming));
  });
  if (stream_path == nullptr) return;
  AddMethod(stream_path, [this](IncomingCall incoming) {
    const std::string named = Models::NamedBy(GrpcCall(incoming.context));
    return EngineStreamMethod<Engine>(services_, Method::kTei, models_, named,
                                      services_)(std::move(incoming));
  });
}

void TeiService::AddInfo() {
  AddMethod("/tei.v1.Info/Info", [this](IncomingCall incoming) {
    std::string named = Models::NamedBy(GrpcCall(incoming.context));
    return TypedMethod<proto::InfoRequest, proto::InfoResponse>(
        services_,
        [this, named = std::move(named)](const Caller&, const auto&, proto::InfoResponse* out) {
          const Choice choice = models_.Choose(named);
          if (choice.error.ok()) Describe(services_.engine.options(), *choice.model, out);
          return choice.error;
        })(std::move(incoming));
  });
}

TeiService::TeiService(const ServiceContext& services, const Models& models)
    : MessageService(services.authorizer), services_(services), models_(models) {
  AddInfo();
  Add<wire::tei::EmbedRequest, proto::EmbedResponse>("/tei.v1.Embed/Embed",
                                                     "/tei.v1.Embed/EmbedStream");
  Add<wire::tei::EmbedSparseRequest, proto::EmbedSparseResponse>("/tei.v1.Embed/EmbedSparse",
                                                                 "/tei.v1.Embed/EmbedSparseStream");
  Add<wire::tei::EmbedAllRequest, proto::EmbedAllResponse>("/tei.v1.Embed/EmbedAll",
                                                           "/tei.v1.Embed/EmbedAllStream");
  Add<wire::tei::PredictRequest, proto::PredictResponse>("/tei.v1.Predict/Predict",
                                                         "/tei.v1.Predict/PredictStream");
  Add<wire::tei::PredictPairRequest, proto::PredictResponse>("/tei.v1.Predict/PredictPair",
                                                             "/tei.v1.Predict/PredictPairStream");
  Add<wire::tei::RerankRequest, proto::RerankResponse>("/tei.v1.Rerank/Rerank", nullptr);
  AddMethod("/tei.v1.Rerank/RerankStream", [this](IncomingCall incoming) {
    const std::string named = Models::NamedBy(GrpcCall(incoming.context));
    return EngineMethod<EngineRequest<RerankStreamProtocol>>(services_, Method::kTei, models_,
                                                             named, services_)(std::move(incoming));
  });
  Add<wire::tei::EncodeRequest, proto::EncodeResponse>("/tei.v1.Tokenize/Tokenize",
                                                       "/tei.v1.Tokenize/TokenizeStream");
  Add<wire::tei::DecodeRequest, proto::DecodeResponse>("/tei.v1.Tokenize/Decode",
                                                       "/tei.v1.Tokenize/DecodeStream");
}

}  // namespace castor::server::tei

#include "server/oip/infer_request.h"

#include "server/codec/convert.h"

namespace castor::server::oip {

void InferRequest::Start(grpc::ByteBuffer* bytes, const RequestOrigin& origin) {
  received_ = origin.received;
  if (origin.trace != nullptr) origin.trace->stage = Stage::kDecode;
  absl::Status started = DecodeAndStart(*bytes, origin);
  if (ReasonOf(started) == Reason::kModelLoading) {
    const auto again = [this](const absl::Status& loaded, grpc::ByteBuffer* kept,
                              const RequestOrigin& from) {
      loaded.ok() ? Start(kept, from) : Refuse(loaded);
    };
    started = Guarded([&] { return OnceLoaded(parts_, started, bytes, origin, again); });
    if (started.ok()) return;
  }
  bytes->Clear();
  if (!started.ok()) Refuse(started);
}

absl::Status InferRequest::DecodeAndStart(const grpc::ByteBuffer& bytes,
                                          const RequestOrigin& origin) {
  SliceView slices(bytes, parts_.decoding);
  wire::ModelInferRequest message;
  if (absl::Status s = server::wire::Parse(&slices, &message); !s.ok()) return s;
  CallContext call;
  if (absl::Status s = ConvertRequestId(message.id, &call); !s.ok()) return s;
  request_id_ = call.request_id;
  absl::StatusOr<ModelPtr> model = catalogue_.Find(message.model_name, message.model_version);
  if (!model.ok()) return model.status();
  requested_.model = *std::move(model);
  const auto start = [&](auto& request, auto decoded, auto decode) {
    decoded.request.call.request_id = request_id_;
    decoded.slices = std::move(slices);
    decoded.regions = RequestRegions({parts_.shared_memory, origin.tenant});
    if constexpr (requires { decoded.request.generation; }) {
      decoded.request.generation = requested_.model->info.generation;
    }
    const absl::Status status = decode(message, &decoded, &requested_);
    if (status.ok()) request.Start(std::move(decoded), origin);
    return status;
  };
  return requested_.model->attention ? start(attend_, DecodedAttend(), DecodeAttend)
                                     : start(encode_, DecodedEncode(), DecodeEncode);
}

void InferRequest::Refuse(const absl::Status& error) {
  const std::chrono::duration<double, std::micro> total =
      std::chrono::steady_clock::now() - received_;
  if (requested_.model != nullptr) requested_.model->counters->Failed(total.count());
  shell_.Refuse(error);
}

}  // namespace castor::server::oip

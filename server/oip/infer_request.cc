#include "server/oip/infer_request.h"

#include "server/codec/convert.h"

namespace castor::server::oip {

void InferRequest::Start(grpc::ByteBuffer* bytes, RequestOrigin origin) {
  received_ = origin.received;
  if (origin.trace != nullptr) origin.trace->stage = Stage::kDecode;
  const absl::Status started = DecodeAndStart(*bytes, std::move(origin));
  bytes->Clear();
  if (!started.ok()) Refuse(started);
}

absl::Status InferRequest::DecodeAndStart(const grpc::ByteBuffer& bytes, RequestOrigin origin) {
  SliceView slices(bytes, parts_.decoding);
  wire::ModelInferRequest message;
  if (absl::Status s = server::wire::Parse(&slices, &message); !s.ok()) return s;
  CallContext call;
  if (absl::Status s = ConvertRequestId(message.id, &call); !s.ok()) return s;
  request_id_ = call.request_id;
  const absl::StatusOr<const Model*> model =
      catalogue_.Find(message.model_name, message.model_version);
  if (!model.ok()) return model.status();
  requested_.model = *model;
  const auto start = [&](auto& request, auto decoded, auto decode) {
    decoded.request.call.request_id = request_id_;
    decoded.slices = std::move(slices);
    decoded.regions = RequestRegions({parts_.shared_memory, origin.tenant});
    const absl::Status status = decode(message, &decoded, &requested_);
    if (status.ok()) request.Start(std::move(decoded), std::move(origin));
    return status;
  };
  return requested_.model->attention ? start(attend_, DecodedAttend(), DecodeAttend)
                                     : start(encode_, DecodedEncode(), DecodeEncode);
}

void InferRequest::Refuse(const absl::Status& error) {
  const std::chrono::duration<double, std::micro> total =
      std::chrono::steady_clock::now() - received_;
  if (requested_.model != nullptr) requested_.model->counters.Failed(total.count());
  shell_.Refuse(error);
}

}  // namespace castor::server::oip

#include "server/services/encoder_service.h"

#include <utility>

#include "server/codec/encoder_codec.h"
#include "server/services/engine_call.h"
#include "server/services/unserved_stream.h"

namespace castor::server {
namespace {

struct EncodeTraits {
  using Decoded = DecodedEncode;
  using Result = EncodeResult;
  static constexpr Method kMethod = Method::kEncode;

  static absl::Status Decode(const grpc::ByteBuffer& bytes, const SharedMemory& shared_memory,
                             DecodedEncode* decoded) {
    return DecodeEncodeRequest(bytes, shared_memory, decoded);
  }
  // The model's own kernel is known only from the answer.
  static std::optional<KernelName> RequestedKernel(const DecodedEncode& decoded) {
    if (!decoded.request.kernel.has_value()) return std::nullopt;
    return server::RequestedKernel(*decoded.request.kernel);
  }
  // The size of an answer to texts is known only with it, so no request can name a place for it.
  static std::optional<OutputRange> TakeOutput(DecodedEncode&) { return std::nullopt; }
  static grpc::ByteBuffer Encode(std::string_view request_id, EncodeResult result,
                                 const std::optional<OutputRange>&, double total_us) {
    return EncodeEncodeResponse(request_id, std::move(result), total_us);
  }
};

}  // namespace

EncoderService::EncoderService(const ServiceContext& services)
    : MessageService(services.authorizer) {
  AddMethod("/castor.v1.EncoderService/Encode", EngineMethod<EncodeTraits>(services));
  AddMethod("/castor.v1.EncoderService/EncodeStream",
            UnservedMethod(services, Method::kEncodeStream));
}

}  // namespace castor::server

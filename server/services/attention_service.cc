#include "server/services/attention_service.h"

#include <utility>

#include "server/codec/attention_codec.h"
#include "server/services/engine_call.h"
#include "server/services/unserved_stream.h"

namespace castor::server {
namespace {

struct AttendTraits {
  using Decoded = DecodedAttend;
  using Result = AttentionResult;
  static constexpr Method kMethod = Method::kAttend;

  static absl::Status Decode(const grpc::ByteBuffer& bytes, const SharedMemory& shared_memory,
                             DecodedAttend* decoded) {
    return DecodeAttendRequest(bytes, shared_memory, decoded);
  }
  static std::optional<KernelName> RequestedKernel(const DecodedAttend& decoded) {
    return server::RequestedKernel(decoded.request.kernel);
  }
  static std::optional<OutputRange> TakeOutput(DecodedAttend& decoded) {
    return std::move(decoded.output);
  }
  static grpc::ByteBuffer Encode(std::string_view request_id, AttentionResult result,
                                 const std::optional<OutputRange>& output, double total_us) {
    if (output.has_value()) return EncodeAttendResponse(request_id, result, *output, total_us);
    return EncodeAttendResponse(request_id, std::move(result), total_us);
  }
};

}  // namespace

grpc::ServerUnaryReactor* AttentionService::Attend(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* bytes,
                                                   grpc::ByteBuffer* response) {
  auto* call = new EngineCall<AttendTraits>(services_, context, response);
  // gRPC made the message mutable and hands it to nobody else.
  call->Start(const_cast<grpc::ByteBuffer*>(bytes));
  return call;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttentionService::AttendStream(
    grpc::CallbackServerContext* context) {
  return new UnservedStream(services_, Method::kAttendStream, context);
}

}  // namespace castor::server

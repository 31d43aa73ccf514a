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

AttentionService::AttentionService(const ServiceContext& services)
    : MessageService(services.authorizer) {
  AddMethod("/castor.v1.AttentionService/Attend", EngineMethod<AttendTraits>(services));
  AddMethod("/castor.v1.AttentionService/AttendStream",
            UnservedMethod(services, Method::kAttendStream));
}

}  // namespace castor::server

#include "server/services/engine_call.h"
#include "server/services/engine_protocols.h"
#include "server/services/services.h"
#include "server/services/unserved_stream.h"

namespace castor::server {

AttentionService::AttentionService(const ServiceContext& services)
    : MessageService(services.authorizer) {
  AddMethod("/castor.v1.AttentionService/Attend",
            EngineMethod<AttendProtocol>(services, Method::kAttend));
  AddMethod("/castor.v1.AttentionService/AttendStream",
            UnservedMethod(services, Method::kAttendStream));
}

EncoderService::EncoderService(const ServiceContext& services)
    : MessageService(services.authorizer) {
  AddMethod("/castor.v1.EncoderService/Encode",
            EngineMethod<EncodeProtocol>(services, Method::kEncode));
  AddMethod("/castor.v1.EncoderService/EncodeStream",
            UnservedMethod(services, Method::kEncodeStream));
}

}  // namespace castor::server

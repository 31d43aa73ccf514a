#include "server/services/attention_service.h"

#include "server/services/engine_call.h"
#include "server/services/engine_protocols.h"
#include "server/services/unserved_stream.h"

namespace castor::server {

AttentionService::AttentionService(const ServiceContext& services)
    : MessageService(services.authorizer) {
  AddMethod("/castor.v1.AttentionService/Attend",
            EngineMethod<AttendProtocol>(services, Method::kAttend));
  AddMethod("/castor.v1.AttentionService/AttendStream",
            UnservedMethod(services, Method::kAttendStream));
}

}  // namespace castor::server

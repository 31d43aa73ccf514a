#include "server/services/encoder_service.h"

#include "server/services/engine_call.h"
#include "server/services/engine_protocols.h"
#include "server/services/unserved_stream.h"

namespace castor::server {

EncoderService::EncoderService(const ServiceContext& services)
    : MessageService(services.authorizer) {
  AddMethod("/castor.v1.EncoderService/Encode",
            EngineMethod<EncodeProtocol>(services, Method::kEncode));
  AddMethod("/castor.v1.EncoderService/EncodeStream",
            UnservedMethod(services, Method::kEncodeStream));
}

}  // namespace castor::server

#include "server/services/engine_call.h"
#include "server/services/engine_protocols.h"
#include "server/services/engine_stream.h"
#include "server/services/services.h"

namespace castor::server {

AttentionService::AttentionService(const ServiceContext& services)
    : MessageService(services.authorizer) {
  AddMethod("/castor.v1.AttentionService/Attend",
            EngineMethod<EngineRequest<AttendProtocol>>(services, Method::kAttend));
  AddMethod("/castor.v1.AttentionService/AttendStream",
            EngineStreamMethod<EngineRequest<AttendProtocol>>(services, Method::kAttendStream));
}

EncoderService::EncoderService(const ServiceContext& services)
    : MessageService(services.authorizer) {
  AddMethod("/castor.v1.EncoderService/Encode",
            EngineMethod<EngineRequest<EncodeProtocol>>(services, Method::kEncode));
  AddMethod("/castor.v1.EncoderService/EncodeStream",
            EngineStreamMethod<EngineRequest<EncodeProtocol>>(services, Method::kEncodeStream));
  AddMethod("/castor.v1.EncoderService/Rerank", EngineMethod<EngineRequest<RerankProtocol>>(
                                                    services, Method::kRerank, services.engine));
  AddMethod("/castor.v1.EncoderService/Tokenize",
            EngineMethod<EngineRequest<TokenizeProtocol>>(services, Method::kTokenize));
  AddMethod("/castor.v1.EncoderService/Detokenize",
            EngineMethod<EngineRequest<DetokenizeProtocol>>(services, Method::kDetokenize));
}

}  // namespace castor::server

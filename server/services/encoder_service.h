// castor.v1.EncoderService. The server calls it on gRPC's threads; stateless.
#pragma once

#include "server/services/call.h"
#include "server/transport/message_service.h"

namespace castor::server {

class EncoderService final : public MessageService {
 public:
  explicit EncoderService(const ServiceContext& services);
};

}  // namespace castor::server

// castor.v1.AttentionService. The server calls it on gRPC's threads; stateless.
#pragma once

#include "server/services/call.h"
#include "server/transport/message_service.h"

namespace castor::server {

class AttentionService final : public MessageService {
 public:
  explicit AttentionService(const ServiceContext& services);
};

}  // namespace castor::server

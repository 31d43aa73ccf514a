// castor.v1.ModelService: what is loaded. Loading at run time is off in this server. The server
// calls it on gRPC's threads; stateless.
#pragma once

#include "server/services/call.h"
#include "server/transport/message_service.h"

namespace castor::server {

class ModelService final : public MessageService {
 public:
  explicit ModelService(const ServiceContext& services);
};

}  // namespace castor::server

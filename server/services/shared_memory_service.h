// castor.v1.SharedMemoryService: which regions requests may refer to. The server calls it on gRPC's
// threads; stateless: the server owns the registry.
#pragma once

#include "server/services/call.h"
#include "server/transport/message_service.h"

namespace castor::server {

class SharedMemoryService final : public MessageService {
 public:
  explicit SharedMemoryService(const ServiceContext& services);
};

}  // namespace castor::server

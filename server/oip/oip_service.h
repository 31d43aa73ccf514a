// `inference.GRPCInferenceService`, on the same port as castor.v1: README.md.
#pragma once

#include "server/oip/catalogue.h"
#include "server/services/call.h"
#include "server/transport/message_call.h"

namespace castor::server::oip {

class OipService final : public MessageService {
 public:
  // `catalogue` outlives this.
  OipService(const ServiceContext& services, const Catalogue& catalogue);

 private:
  template <typename Request, typename Response, typename Handler>
  void AddSmall(const ServiceContext& services, const char* path, Handler handler);
  void AddServerMethods(const ServiceContext& services);
  void AddModelMethods(const ServiceContext& services);
  void AddSharedMemoryMethods(const ServiceContext& services);

  const Catalogue& catalogue_;
};

}  // namespace castor::server::oip

// grpc.health.v1.Health, a thin service around the state in server/lifecycle/health.h. The server
// calls it on gRPC's threads; stateless. A second listener can serve the same state by a service of
// its own.
#pragma once

#include "server/lifecycle/health.h"
#include "server/transport/call_table.h"
#include "server/transport/message_call.h"

namespace castor::server {

class HealthService final : public MessageService {
 public:
  // As what the calls of each method count in the table.
  struct Kinds {
    CallTable::Kind check;
    CallTable::Kind watch;
  };

  // All must outlive the service.
  HealthService(HealthState& state, CallTable& calls, Kinds kinds, const Authorizer& authorizer);
};

}  // namespace castor::server

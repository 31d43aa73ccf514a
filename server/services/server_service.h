// castor.v1.ServerService: what a client may want to know before its first request. The server
// calls it on gRPC's threads; constant after construction.
#pragma once

#include <string>

#include "castor/v1/server.pb.h"
#include "server/services/call.h"
#include "server/transport/message_service.h"

namespace castor::server {

class ServerService final : public MessageService {
 public:
  // `metrics_address` is read at each call, and must outlive this.
  ServerService(const ServiceContext& services, int64_t max_message_bytes,
                const std::string& metrics_address);

 private:
  const v1::ServerInfo info_;  // without the uptime
  const TimePoint started_;
};

}  // namespace castor::server

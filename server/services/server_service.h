// castor.v1.ServerService: what a client may want to know before its first request. The server
// calls it on gRPC's threads; constant after construction.
#pragma once

#include "castor/v1/server.grpc.pb.h"
#include "server/services/call.h"

namespace castor::server {

class ServerService final
    : public v1::ServerService::WithRawCallbackMethod_GetServerInfo<v1::ServerService::Service> {
 public:
  ServerService(const ServiceContext& services, int64_t max_message_bytes);

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* bytes,
                                          grpc::ByteBuffer* response) override;

 private:
  const ServiceContext& services_;
  const v1::ServerInfo info_;  // without the uptime
  const TimePoint started_;
};

}  // namespace castor::server

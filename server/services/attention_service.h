// castor.v1.AttentionService. The server calls it on gRPC's threads; stateless.
#pragma once

#include "castor/v1/attention.grpc.pb.h"
#include "server/services/call.h"

namespace castor::server {

class AttentionService final
    : public v1::AttentionService::WithRawCallbackMethod_Attend<
          v1::AttentionService::WithRawCallbackMethod_AttendStream<v1::AttentionService::Service>> {
 public:
  explicit AttentionService(const ServiceContext& services) : services_(services) {}

  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* bytes,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendStream(
      grpc::CallbackServerContext* context) override;

 private:
  const ServiceContext& services_;
};

}  // namespace castor::server

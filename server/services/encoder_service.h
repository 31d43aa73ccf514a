// castor.v1.EncoderService. The server calls it on gRPC's threads; stateless.
#pragma once

#include "castor/v1/encoder.grpc.pb.h"
#include "server/services/call.h"

namespace castor::server {

class EncoderService final
    : public v1::EncoderService::WithRawCallbackMethod_Encode<
          v1::EncoderService::WithRawCallbackMethod_EncodeStream<v1::EncoderService::Service>> {
 public:
  explicit EncoderService(const ServiceContext& services) : services_(services) {}

  grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* bytes,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* EncodeStream(
      grpc::CallbackServerContext* context) override;

 private:
  const ServiceContext& services_;
};

}  // namespace castor::server

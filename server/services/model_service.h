// castor.v1.ModelService: what is loaded. Loading at run time is off in this server. The server
// calls it on gRPC's threads; stateless.
#pragma once

#include "castor/v1/model.grpc.pb.h"
#include "server/services/call.h"

namespace castor::server {

class ModelService final : public v1::ModelService::WithRawCallbackMethod_ListModels<
                               v1::ModelService::WithRawCallbackMethod_GetModel<
                                   v1::ModelService::WithRawCallbackMethod_LoadModel<
                                       v1::ModelService::WithRawCallbackMethod_UnloadModel<
                                           v1::ModelService::Service>>>> {
 public:
  explicit ModelService(const ServiceContext& services) : services_(services) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* bytes,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* LoadModel(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* bytes,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* UnloadModel(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* bytes,
                                        grpc::ByteBuffer* response) override;

 private:
  const ServiceContext& services_;
};

}  // namespace castor::server

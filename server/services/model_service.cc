#include "castor/v1/model.pb.h"
#include "engine/base/error.h"
#include "server/services/services.h"
#include "server/services/typed_call.h"

namespace castor::server {
namespace {

absl::Status ModelControlOff() {
  return MakeError(Reason::kModelControlOff, "models are loaded only when the server starts");
}

}  // namespace

ModelService::ModelService(const ServiceContext& services) : MessageService(services.authorizer) {
  AddMethod("/castor.v1.ModelService/ListModels",
            TypedMethod<v1::ListModelsRequest, v1::ListModelsResponse>(
                services, [&services](const Caller&, const v1::ListModelsRequest&,
                                      v1::ListModelsResponse* answer) {
                  for (const ModelInfo& model : services.engine.info().models) {
                    Describe(model, answer->add_models());
                  }
                  return absl::OkStatus();
                }));
  AddMethod("/castor.v1.ModelService/GetModel",
            TypedMethod<v1::GetModelRequest, v1::Model>(
                services,
                [&services](const Caller&, const v1::GetModelRequest& request,
                            v1::Model* answer) -> absl::Status {
                  for (const ModelInfo& model : services.engine.info().models) {
                    if (model.name != request.name()) continue;
                    Describe(model, answer);
                    return absl::OkStatus();
                  }
                  return MakeError(Reason::kModelNotFound, "no model is named \"" + request.name() +
                                                               "\"; ListModels lists all models");
                }));
  AddMethod("/castor.v1.ModelService/LoadModel",
            TypedMethod<v1::LoadModelRequest, v1::Model>(
                services, [](const Caller&, const v1::LoadModelRequest&, v1::Model*) {
                  return ModelControlOff();
                }));
  AddMethod("/castor.v1.ModelService/UnloadModel",
            TypedMethod<v1::UnloadModelRequest, v1::UnloadModelResponse>(
                services, [](const Caller&, const v1::UnloadModelRequest&,
                             v1::UnloadModelResponse*) { return ModelControlOff(); }));
}

}  // namespace castor::server

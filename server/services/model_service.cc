#include "server/services/model_service.h"

#include "engine/base/error.h"
#include "server/services/describe.h"
#include "server/services/typed_call.h"

namespace castor::server {
namespace {

absl::Status ModelControlOff() {
  return MakeError(Reason::kModelControlOff,
                   "models are loaded when the server starts, and only then");
}

}  // namespace

grpc::ServerUnaryReactor* ModelService::ListModels(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* bytes,
                                                   grpc::ByteBuffer* response) {
  return AnswerTyped<v1::ListModelsRequest, v1::ListModelsResponse>(
      services_, Method::kListModels, context, bytes, response,
      [this](const v1::ListModelsRequest&, v1::ListModelsResponse* answer) {
        for (const ModelInfo& model : services_.engine.info().models) {
          *answer->add_models() = ToProto(model);
        }
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ModelService::GetModel(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* bytes,
                                                 grpc::ByteBuffer* response) {
  return AnswerTyped<v1::GetModelRequest, v1::Model>(
      services_, Method::kGetModel, context, bytes, response,
      [this](const v1::GetModelRequest& request, v1::Model* answer) -> absl::Status {
        for (const ModelInfo& model : services_.engine.info().models) {
          if (model.name != request.name()) continue;
          *answer = ToProto(model);
          return absl::OkStatus();
        }
        return MakeError(Reason::kModelNotFound,
                         "no model is named \"" + request.name() + "\"; ListModels names all");
      });
}

grpc::ServerUnaryReactor* ModelService::LoadModel(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* bytes,
                                                  grpc::ByteBuffer* response) {
  return AnswerTyped<v1::LoadModelRequest, v1::Model>(
      services_, Method::kLoadModel, context, bytes, response,
      [](const v1::LoadModelRequest&, v1::Model*) { return ModelControlOff(); });
}

grpc::ServerUnaryReactor* ModelService::UnloadModel(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* response) {
  return AnswerTyped<v1::UnloadModelRequest, v1::UnloadModelResponse>(
      services_, Method::kUnloadModel, context, bytes, response,
      [](const v1::UnloadModelRequest&, v1::UnloadModelResponse*) { return ModelControlOff(); });
}

}  // namespace castor::server

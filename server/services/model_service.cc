#include <chrono>
#include <memory>
#include <utility>

#include "castor/v1/model.pb.h"
#include "engine/base/error.h"
#include "server/codec/enums.h"
#include "server/services/models.h"
#include "server/services/services.h"
#include "server/services/typed_call.h"

namespace castor::server {
namespace {

void DescribeStatus(const ModelStatus& status, v1::Model* out) {
  out->set_name(status.name);
  out->set_state(ToWire(kModelStates, status.state));
  out->set_pinned(status.pinned);
  if (status.state == ModelState::kReady && !status.pinned && status.users == 0) {
    const std::chrono::duration<double> idle = std::chrono::steady_clock::now() - status.last_used;
    out->set_idle_seconds(idle.count());
  }
  out->set_loads(static_cast<int64_t>(status.loads));
  out->set_load_seconds(status.load_seconds);
  out->set_failure(status.failure);
}

absl::Status List(const Engine& engine, bool all, v1::ListModelsResponse* answer) {
  const std::shared_ptr<const ModelInfos> models = engine.models();
  for (const ModelStatus& status : engine.model_statuses()) {
    const ModelInfoPtr loaded = FindModel(models, status.name);
    if (loaded == nullptr && !all) continue;
    v1::Model* const model = answer->add_models();
    if (loaded != nullptr) Describe(*loaded, model);
    DescribeStatus(status, model);
  }
  return absl::OkStatus();
}

absl::Status Get(const Engine& engine, const std::string& name, v1::Model* answer) {
  const ModelInfoPtr model = FindModel(engine.models(), name);
  if (model == nullptr) {
    return Missing(engine, name, "no model is named \"" + name + "\"; ListModels lists all models");
  }
  Describe(*model, answer);
  for (const ModelStatus& status : engine.model_statuses()) {
    if (status.name == name) DescribeStatus(status, answer);
  }
  return absl::OkStatus();
}

// Has a model loaded that a request would load: clients ask about a model before they use it.
void Await(Engine& engine, const std::string& name, ModelCompletion done) {
  if (FindModel(engine.models(), name) != nullptr ||
      ReasonOf(engine.NotLoaded(name)) != Reason::kModelLoading) {
    return std::move(done)(absl::OkStatus());  // Get then says what there is
  }
  const auto shared = std::make_shared<ModelCompletion>(std::move(done));
  const absl::Status awaits = engine.AwaitModel(
      name, TimePoint::max(), [shared](const absl::Status& s) { std::move (*shared)(s); });
  if (!awaits.ok()) std::move (*shared)(awaits);
}

}  // namespace

ModelService::ModelService(const ServiceContext& services) : MessageService(services.authorizer) {
  Engine& engine = services.engine;
  AddMethod("/castor.v1.ModelService/ListModels",
            TypedMethod<v1::ListModelsRequest, v1::ListModelsResponse>(
                services, [&engine](const Caller&, const v1::ListModelsRequest& request,
                                    v1::ListModelsResponse* answer) {
                  return List(engine, request.all(), answer);
                }));
  AddMethod("/castor.v1.ModelService/GetModel",
            DeferredMethod<v1::GetModelRequest, v1::Model>(
                services,
                [&engine](const Caller&, const v1::GetModelRequest& request, ModelCompletion done) {
                  Await(engine, request.name(), std::move(done));
                },
                [&engine](const v1::GetModelRequest& request, v1::Model* answer) {
                  return Get(engine, request.name(), answer);
                }));
  AddMethod(
      "/castor.v1.ModelService/LoadModel",
      DeferredMethod<v1::LoadModelRequest, v1::Model>(
          services,
          [&engine](const Caller&, const v1::LoadModelRequest& request, ModelCompletion done) {
            engine.LoadModel(request.name(), request.directory(), request.replace(),
                             std::move(done));
          },
          // It may have been unloaded again.
          [&engine](const v1::LoadModelRequest& request, v1::Model* answer) {
            if (!Get(engine, request.name(), answer).ok()) answer->set_name(request.name());
            return absl::OkStatus();
          }));
  AddMethod(
      "/castor.v1.ModelService/UnloadModel",
      DeferredMethod<v1::UnloadModelRequest, v1::UnloadModelResponse>(
          services,
          [&engine](const Caller&, const v1::UnloadModelRequest& request, ModelCompletion done) {
            engine.UnloadModel(request.name(), std::move(done));
          },
          [](const auto&, auto*) { return absl::OkStatus(); }));
}

}  // namespace castor::server

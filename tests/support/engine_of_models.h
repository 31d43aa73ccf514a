// The part of an engine that lists its models, for engines of tests: one without a catalog, which
// loads nothing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"

namespace castor {

class EngineOfModels : public Engine {
 public:
  // What models() returns from now on.
  void SetModels(ModelInfos models) {
    auto list = std::make_shared<const ModelInfos>(std::move(models));
    MutexLock lock(models_mu_);
    models_ = std::move(list);
  }

  std::shared_ptr<const ModelInfos> models() const override {
    MutexLock lock(models_mu_);
    return models_;
  }
  std::vector<ModelStatus> model_statuses() const override {
    std::vector<ModelStatus> statuses;
    const std::shared_ptr<const ModelInfos> all = models();
    for (const ModelInfo& model : *all) {
      ModelStatus& status = statuses.emplace_back();
      status.name = model.name;
      status.state = ModelState::kReady;
      status.pinned = true;
    }
    return statuses;
  }
  ModelCatalogStats catalog_stats() const override { return {}; }
  void LoadModel(const std::string&, const std::string&, bool, ModelCompletion done) override {
    std::move(done)(ControlOff());
  }
  void UnloadModel(const std::string&, ModelCompletion done) override {
    std::move(done)(ControlOff());
  }
  absl::Status NotLoaded(const std::string& name) const override {
    return MakeError(Reason::kModelNotFound, "no model is named \"" + name + "\"");
  }
  absl::Status AwaitModel(const std::string& name, TimePoint, ModelCompletion) override {
    return NotLoaded(name);
  }

 private:
  static absl::Status ControlOff() {
    return MakeError(Reason::kModelControlOff, "models are loaded only when the engine starts");
  }

  mutable Mutex models_mu_;
  std::shared_ptr<const ModelInfos> models_ ABSL_GUARDED_BY(models_mu_) =
      std::make_shared<ModelInfos>();
};

}  // namespace castor

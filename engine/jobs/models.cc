#include "engine/jobs/models.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace castor {

Models::Models(std::vector<LoadedModel> models) : models_(std::move(models)) {
  std::sort(models_.begin(), models_.end(),
            [](const LoadedModel& a, const LoadedModel& b) { return a.info.name < b.info.name; });
  for (const LoadedModel& model : models_) {
    for (size_t i = 0; i < model.cast_layers.size(); ++i) {
      cast_layers_.Add(model.info.name + "/" + std::to_string(i), model.cast_layers[i]);
    }
  }
}

absl::StatusOr<const LoadedModel*> Models::FindEncoder(const std::string& name) const {
  if (name.empty()) {
    const LoadedModel* only = nullptr;
    int encoders = 0;
    for (const LoadedModel& model : models_) {
      if (model.model == nullptr) continue;
      only = &model;
      ++encoders;
    }
    if (encoders == 1) return only;
    return MakeError(Reason::kModelNotFound,
                     encoders == 0 ? "no model is loaded"
                                   : "several models are loaded: the request must name one");
  }
  for (const LoadedModel& model : models_) {
    if (model.info.name != name) continue;
    if (model.model != nullptr) return &model;
    return MakeError(Reason::kKernelNotAvailable,
                     "model \"" + name + "\" holds CAST layers and encodes nothing");
  }
  return MakeError(Reason::kModelNotFound, "no model is named \"" + name + "\"");
}

}  // namespace castor

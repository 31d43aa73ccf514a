#include "engine/scheduling/models.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace castor {

Models::Models(std::vector<LoadedModel> models) : models_(std::move(models)) {
  std::sort(models_.begin(), models_.end(),
            [](const LoadedModel& a, const LoadedModel& b) { return a.info.name < b.info.name; });
}

absl::StatusOr<const LoadedModel*> Models::Find(const std::string& name) const {
  if (name.empty()) {
    if (models_.size() == 1) return &models_.front();
    return MakeError(Reason::kModelNotFound,
                     models_.empty() ? "no model is loaded"
                                     : "several models are loaded: the request must name one");
  }
  for (const LoadedModel& model : models_) {
    if (model.info.name == name) return &model;
  }
  return MakeError(Reason::kModelNotFound, "no model is named \"" + name + "\"");
}

}  // namespace castor

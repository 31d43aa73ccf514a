// The models that an engine has loaded. Immutable after start-up, so any thread may read it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace castor {

namespace encoder {
class Model;
}  // namespace encoder

struct LoadedModel {
  ModelInfo info;
  std::shared_ptr<encoder::Model> model;
};

class Models {
 public:
  Models() = default;
  // Sorts by name. Requires that names differ.
  explicit Models(std::vector<LoadedModel> models);

  // MODEL_NOT_FOUND when there is no such model, or when `name` is empty and there is not exactly
  // one. Valid as long as this object.
  absl::StatusOr<const LoadedModel*> Find(const std::string& name) const;

  const std::vector<LoadedModel>& all() const { return models_; }

 private:
  std::vector<LoadedModel> models_;
};

}  // namespace castor

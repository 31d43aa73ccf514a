// The models that an engine has loaded. Immutable after start-up, so any thread may read it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/cast_layers.h"
#include "engine/engine.h"

namespace castor {

namespace encoder {
class Model;
}  // namespace encoder

struct LoadedModel {
  ModelInfo info;
  std::shared_ptr<encoder::Model> model;  // null for a file of CAST layers
  std::vector<std::shared_ptr<const attention::CastLayer>> cast_layers;
};

class Models {
 public:
  Models() = default;
  // Sorts by name. Requires that names differ.
  explicit Models(std::vector<LoadedModel> models);

  // The encoder of that name. MODEL_NOT_FOUND when there is no such model, or when `name` is empty
  // and there is not exactly one encoder; KERNEL_NOT_AVAILABLE when the model encodes nothing.
  // Valid as long as this object.
  absl::StatusOr<const LoadedModel*> FindEncoder(const std::string& name) const;

  // The layers of all models, as "MODEL/INDEX".
  const attention::CastLayers& cast_layers() const { return cast_layers_; }

  const std::vector<LoadedModel>& all() const { return models_; }

 private:
  std::vector<LoadedModel> models_;
  attention::CastLayers cast_layers_;
};

}  // namespace castor

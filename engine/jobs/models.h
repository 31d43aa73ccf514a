// A loaded model, and the set of all models at one moment.
//
// Both are immutable and shared: users hold them by shared_ptr, and may go on using one that has
// been replaced or removed. The registry (model_registry.h) has the current set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/cast/cast_layers.h"
#include "engine/encoder/model.h"
#include "engine/engine.h"

namespace castor {

struct LoadedModel {
  // Identifies this load: assigned by the registry and never reused, unlike names.
  uint64_t generation = 0;
  ModelInfo info;
  std::shared_ptr<const encoder::Model> encoder;  // null for a file of CAST layers
  std::vector<std::shared_ptr<const attention::CastLayer>> cast_layers;  // by index
};

using ModelPtr = std::shared_ptr<const LoadedModel>;

class ModelSet {
 public:
  ModelSet() = default;
  // Sorts by name. Requires that names differ.
  explicit ModelSet(std::vector<ModelPtr> models);

  // The model of that name, or null.
  ModelPtr Find(const std::string& name) const;

  // The encoder of that name. MODEL_NOT_FOUND when there is no such model, or when `name` is empty
  // and there is not exactly one encoder; KERNEL_NOT_AVAILABLE when the model encodes nothing.
  absl::StatusOr<ModelPtr> FindEncoder(const std::string& name) const;

  // The layers of all models, as "MODEL/INDEX".
  const attention::CastLayers& cast_layers() const { return cast_layers_; }

  const std::vector<ModelPtr>& all() const { return models_; }  // sorted by name

 private:
  std::vector<ModelPtr> models_;
  attention::CastLayers cast_layers_;
};

}  // namespace castor

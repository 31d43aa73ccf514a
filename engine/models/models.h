// The models that an engine loaded when it started.
//
// Immutable. An encoder's weights are in the device's memory, and the thread that owns the device
// must free them: all other references to its models must be gone when that thread destroys the
// set.
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
  uint64_t number = 0;  // identifies its weights in the set, from 1
  ModelInfo info;
  std::shared_ptr<const encoder::Model> encoder;  // null for a file of CAST layers
  std::vector<std::shared_ptr<const attention::CastLayer>> cast_layers;  // by index
};

using ModelPtr = std::shared_ptr<const LoadedModel>;

class ModelSet {
 public:
  ModelSet() = default;
  // Sorts and numbers them. Requires that names differ.
  explicit ModelSet(std::vector<LoadedModel> models);

  // The model of that name, or null.
  ModelPtr Find(const std::string& name) const;

  // The encoder of that name. MODEL_NOT_FOUND if there is no such model, or if `name` is empty and
  // there is not exactly one encoder, apart from aliases; KERNEL_NOT_AVAILABLE if the model encodes
  // nothing.
  absl::StatusOr<ModelPtr> FindEncoder(const std::string& name) const;

  // The layers of all models, as "MODEL/INDEX".
  const attention::CastLayers& cast_layers() const { return cast_layers_; }

  const std::vector<ModelPtr>& all() const { return models_; }  // sorted by name

 private:
  std::vector<ModelPtr> models_;
  attention::CastLayers cast_layers_;
};

}  // namespace castor

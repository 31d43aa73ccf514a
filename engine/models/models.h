// The models that an engine has loaded when it started.
//
// Immutable. An encoder's weights are in the device's memory, and must be freed by the thread that
// owns the device: when the set is, nobody may hold one of its models any more.
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
  uint64_t number = 0;  // of its weights in the set, from 1
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

  // The encoder of that name. MODEL_NOT_FOUND when there is no such model, or when `name` is empty
  // and there is not exactly one encoder, by whatever names; KERNEL_NOT_AVAILABLE when the model
  // encodes nothing.
  absl::StatusOr<ModelPtr> FindEncoder(const std::string& name) const;

  // The layers of all models, as "MODEL/INDEX".
  const attention::CastLayers& cast_layers() const { return cast_layers_; }

  const std::vector<ModelPtr>& all() const { return models_; }  // sorted by name

 private:
  std::vector<ModelPtr> models_;
  attention::CastLayers cast_layers_;
};

}  // namespace castor

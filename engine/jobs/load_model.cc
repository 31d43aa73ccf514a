#include "engine/jobs/load_model.h"

#include <utility>

#include "engine/encoder/cast_file.h"

namespace castor {

absl::StatusOr<LoadedModel> LoadModel(Device& device, const ModelSource& source) {
  LoadedModel model;
  if (encoder::IsCastFile(source.directory)) {
    auto file = encoder::ReadCastFile(source);
    if (!file.ok()) return file.status();
    model.info = std::move(file->info);
    model.cast_layers = std::move(file->layers);
    return model;
  }
  auto loaded = device.LoadModel(source);
  if (!loaded.ok()) return loaded.status();
  model.encoder = *std::move(loaded);
  model.info = model.encoder->info();
  return model;
}

}  // namespace castor

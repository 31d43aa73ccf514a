#include "engine/loop/load_model.h"

#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/encoder/directory/cast_file.h"

namespace castor {

absl::StatusOr<LoadedModel> LoadModel(Device& device, const ModelSource& source,
                                      DeviceBudget& budget) {
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
  const int64_t bytes = model.info.weight_bytes;
  if (!budget.TakeWeights(bytes)) {
    return MakeError(Reason::kTooLarge,
                     "the weights of model \"" + source.name + "\" take " + std::to_string(bytes) +
                         " bytes of the device's memory, and " + std::to_string(budget.for_runs()) +
                         " of " + std::to_string(budget.most()) + " are free (--max-device-bytes)");
  }
  return model;
}

}  // namespace castor

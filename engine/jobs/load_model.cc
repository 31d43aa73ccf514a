#include "engine/jobs/load_model.h"

#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/encoder/directory/cast_file.h"

namespace castor {

absl::StatusOr<LoadedModel> LoadModel(Device& device, const ModelSource& source,
                                      std::shared_ptr<DeviceBudget> budget) {
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
  model.info = (*loaded)->info();
  const int64_t bytes = model.info.weight_bytes;
  if (!budget->TakeWeights(bytes)) {
    return MakeError(Reason::kTooLarge,
                     "the weights of model \"" + source.name + "\" take " + std::to_string(bytes) +
                         " bytes of the device's memory, and " +
                         std::to_string(budget->for_runs()) + " of " +
                         std::to_string(budget->most()) + " are free (--max-device-bytes)");
  }
  const encoder::Model* const encoder = loaded->get();
  model.encoder = std::shared_ptr<const encoder::Model>(
      encoder, [kept = *std::move(loaded), budget = std::move(budget),
                bytes](const encoder::Model*) mutable {
        kept.reset();
        budget->GiveBackWeights(bytes);
      });
  return model;
}

}  // namespace castor

#include "engine/device/cuda/launch/cast_layers.h"

#include <map>

namespace castor {

BatchLayers DistinctLayers(std::span<const attention::Problem> requests, int64_t layer_bytes) {
  BatchLayers batch;
  std::map<const std::byte*, int32_t> known;
  for (const attention::Problem& request : requests) {
    for (int64_t s = 0; s < request.sequences(); ++s) {
      const std::byte* const layer = request.cast.surrogates + request.cast.layer(s) * layer_bytes;
      const auto [at, fresh] = known.try_emplace(layer, static_cast<int32_t>(known.size()));
      if (fresh) batch.layers.push_back(layer);
      batch.layer_of_sequence.push_back(at->second);
    }
  }
  return batch;
}

}  // namespace castor

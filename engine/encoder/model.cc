#include "engine/encoder/model.h"

namespace castor::encoder {

std::vector<AttentionLayers> Model::attention(const Kernel& kernel) const {
  return UniformAttention(info(), kernel);
}

absl::StatusOr<Prepared> Prepare(const EncodeRequest& request, const Model& model) {
  Prepared prepared;
  const absl::StatusOr<bool> done = model.PrepareSome(request, {}, &prepared);
  if (!done.ok()) return done.status();
  return prepared;
}

}  // namespace castor::encoder

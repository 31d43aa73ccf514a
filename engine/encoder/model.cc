#include "engine/encoder/model.h"

#include "engine/attention/problem.h"

namespace castor::encoder {

std::vector<AttentionLayers> Model::attention(const Kernel& kernel) const {
  return UniformAttention(info(), kernel);
}

absl::Status CheckOption(const Model& model, const Kernel& kernel,
                         std::span<const attention::Variant> variants) {
  if (attention::OptionBeyondThePaper(kernel).empty()) return absl::OkStatus();
  for (const AttentionLayers& alike : model.attention(kernel)) {
    if (absl::Status s = attention::CheckOption(variants, alike.spec); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<Prepared> Prepare(const EncodeRequest& request, const Model& model) {
  Prepared prepared;
  const absl::StatusOr<bool> done = model.PrepareSome(request, {}, &prepared);
  if (!done.ok()) return done.status();
  return prepared;
}

}  // namespace castor::encoder

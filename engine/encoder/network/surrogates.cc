#include "engine/encoder/network/surrogates.h"

#include <ATen/ops/empty.h>

#include <cstddef>

namespace castor::encoder {

absl::StatusOr<at::Tensor> Surrogates::Gates(const at::Tensor& x, const LayerNorm& before,
                                             int64_t step, RunControl& control) const {
  at::Tensor gates = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
  absl::Status done = InSteps(x.size(0), step, control, [&](int64_t first, int64_t count) {
    const at::Tensor rows = before(x.narrow(0, first, count));
    gates.narrow(0, first, count).copy_(gate(rows).view({count}));
  });
  if (!done.ok()) return done;
  return gates;
}

attention::CastInputs Surrogates::Inputs(const at::Tensor& gates) const {
  attention::CastInputs inputs;
  inputs.surrogates = static_cast<const std::byte*>(tokens.const_data_ptr());
  inputs.gate = gates.const_data_ptr<float>();
  return inputs;
}

kernels::Count Surrogates::row_bytes() const {
  const auto element = static_cast<int64_t>(tokens.element_size());
  return kernels::Count(gate.in() + 1) * element + gate.scratch_bytes_of_row();
}

Surrogates TakeSurrogates(WeightReader& weights, const std::string& at, std::string_view tokens,
                          std::string_view gate, const BodyInfo& info) {
  const auto name = [&at](std::string_view part) { return at + std::string(part); };
  Surrogates taken;
  taken.tokens =
      weights.Take(name(tokens), {info.surrogates, info.heads, info.hidden / info.heads});
  taken.gate = Linear(weights.Take(name(gate) + ".weight", {1, info.hidden}),
                      weights.Take(name(gate) + ".bias", {1}));
  return taken;
}

}  // namespace castor::encoder

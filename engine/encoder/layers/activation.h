// The activation functions of configs.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

namespace castor::encoder {

enum class Activation { kGeluErf, kGeluTanh, kQuickGelu, kRelu, kSilu, kTanh, kMish };

// nullopt for an unknown name. "gelu" is the exact form with erf.
std::optional<Activation> ParseActivation(std::string_view name);

// Overwrites `x`, which it returns.
at::Tensor Activate(Activation activation, at::Tensor x);

}  // namespace castor::encoder

#include "engine/encoder/layers/activation.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

namespace castor::encoder {

std::optional<Activation> ParseActivation(std::string_view name) {
  struct Row {
    std::string_view name;
    Activation activation;
  };
  constexpr Row kRows[] = {
      {"gelu", Activation::kGeluErf},
      {"gelu_python", Activation::kGeluErf},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"quick_gelu", Activation::kQuickGelu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"tanh", Activation::kTanh},
      {"mish", Activation::kMish},
  };
  for (const Row& row : kRows) {
    if (row.name == name) return row.activation;
  }
  return std::nullopt;
}

at::Tensor Activate(Activation activation, at::Tensor x) {
  switch (activation) {
    case Activation::kGeluErf:
      return at::gelu_(x, "none");
    case Activation::kGeluTanh:
      return at::gelu_(x, "tanh");
    case Activation::kQuickGelu:
      return x.mul_(at::sigmoid(x.mul(1.702)));
    case Activation::kRelu:
      return at::relu_(x);
    case Activation::kSilu:
      return at::silu_(x);
    case Activation::kTanh:
      return at::tanh_(x);
    case Activation::kMish:
      return at::mish_(x);
  }
  return x;
}

}  // namespace castor::encoder

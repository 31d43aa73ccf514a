// The activation functions of encoders' MLPs.
#pragma once

namespace castor::kernels {

enum class Activation {
  kNone,
  kGeluErf,    // x Phi(x)
  kGeluTanh,   // its approximation by tanh
  kQuickGelu,  // x sigmoid(1.702 x)
  kRelu,
  kSilu,  // x sigmoid(x)
  kTanh,
};

}  // namespace castor::kernels

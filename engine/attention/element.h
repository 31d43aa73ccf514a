// The kernels' element type for a tensor's dtype.
#pragma once

#include "engine/base/dtype.h"
#include "engine/kernels/element.h"

namespace castor::attention {

// Requires IsFloating(dtype).
constexpr kernels::Element ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return kernels::Element::kFloat16;
    case DType::kBFloat16:
      return kernels::Element::kBFloat16;
    default:
      return kernels::Element::kFloat32;
  }
}

}  // namespace castor::attention

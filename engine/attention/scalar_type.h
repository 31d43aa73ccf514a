// The tensor library's name for a dtype.
#pragma once

#include <c10/core/ScalarType.h>

#include "engine/base/dtype.h"
#include "engine/kernels/element.h"

namespace castor::attention {

constexpr at::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kInt8:
      return at::kChar;
    case DType::kUInt8:
      return at::kByte;
  }
  return at::kFloat;
}

// The kernels' element type for a tensor's dtype.

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

// The tensor library's name for a dtype.
#pragma once

#include <c10/core/ScalarType.h>

#include "engine/base/dtype.h"

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

}  // namespace castor::attention

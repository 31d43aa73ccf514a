// The element types that kernels read and write. A separate type, since this folder depends on no
// other.
#pragma once

namespace castor::kernels {

enum class Element { kFloat32, kFloat16, kBFloat16 };

}  // namespace castor::kernels

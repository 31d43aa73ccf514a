// The search for NaN and Inf in a tensor's bytes, for requests that ask for it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/dtype.h"

namespace castor::attention {

// The index of the first element of `data` that is NaN or Inf; nullopt if all are finite, as
// integers always are. `data` is aligned to the element's size and holds whole elements. Any
// thread; runs at memory speed.
std::optional<size_t> FindNonFinite(DType dtype, std::span<const std::byte> data);

// NON_FINITE_INPUT at `field` if an element of `data` is NaN or Inf, naming the first one.
// Requirements as above.
absl::Status CheckFinite(DType dtype, std::span<const std::byte> data, std::string_view field);

}  // namespace castor::attention

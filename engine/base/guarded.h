// The edge where exceptions end: calls into code that allocates or computes, turned into a Status.
//
// Devices catch what their libraries throw. This catches what nobody expected, above all
// std::bad_alloc: a failure of one request must not end the process. If there is not even memory
// for the error's text, it does end.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "engine/base/error.h"

namespace castor {

// Calls `function`, which returns an absl::Status or absl::StatusOr.
template <typename Function>
auto Guarded(Function&& function) noexcept -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return MakeError(Reason::kOutOfMemory, "out of host memory");
  } catch (const std::system_error& error) {
    return MakeError(Reason::kInternal,
                     std::string("a thread or another resource cannot be had: ") + error.what());
  } catch (const std::exception& error) {
    return MakeError(Reason::kInternal, std::string("unexpected exception: ") + error.what());
  }
}

}  // namespace castor

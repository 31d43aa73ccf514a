// Turns exceptions into a Status, around code that allocates or computes.
//
// Devices catch the exceptions of their libraries. This catches the others, above all
// std::bad_alloc: a failure of one request must not end the process. It does end if there is no
// memory even for the text of another error.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include "engine/base/error.h"

namespace castor {

// Made once, because copying it needs no memory.
inline const absl::Status& out_of_host_memory =
    *new absl::Status(MakeError(Reason::kOutOfMemory, "out of host memory"));

// Calls `function`, which returns an absl::Status, an absl::StatusOr or nothing, which is OK.
template <typename Function, typename Result = decltype(std::declval<Function>()())>
auto Guarded(Function&& function) noexcept
    -> std::conditional_t<std::is_void_v<Result>, absl::Status, Result> {
  try {
    if constexpr (std::is_void_v<Result>) {
      function();
      return absl::OkStatus();
    } else {
      return function();
    }
  } catch (const std::bad_alloc&) {
    return out_of_host_memory;
  } catch (const std::system_error& error) {
    return MakeError(Reason::kInternal,
                     std::string("cannot get a thread or another resource: ") + error.what());
  } catch (const std::exception& error) {
    return MakeError(Reason::kInternal, std::string("unexpected exception: ") + error.what());
  }
}

}  // namespace castor

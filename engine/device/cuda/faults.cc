#include "engine/device/cuda/faults.h"

#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <new>
#include <string>

#include "engine/base/error.h"

namespace castor {
namespace {

// LibTorch appends advice and source positions in further lines.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

absl::Status OutOfMemory(const char* message) {
  return MakeError(Reason::kOutOfMemory, FirstLine(message));
}

}  // namespace

absl::Status Faults::FromCurrentException() {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    cudaGetLastError();  // not sticky: the next call starts clean
    return OutOfMemory(error.what_without_backtrace());
  } catch (const c10::AcceleratorError& error) {
    if (error.get_error_code() == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return OutOfMemory(error.what_without_backtrace());
    }
    return Internal(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return Internal(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return OutOfMemory("the host has no memory left");
  } catch (const std::exception& error) {
    return Internal(error.what());
  } catch (...) {
    return Internal("an exception of unknown type");
  }
}

absl::Status Faults::FromCode(int code, const char* call) {
  if (code == cudaSuccess) return absl::OkStatus();
  const std::string message =
      std::string(call) + ": " + cudaGetErrorString(static_cast<cudaError_t>(code));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return OutOfMemory(message.c_str());
  }
  return Internal(message.c_str());
}

absl::Status Faults::Internal(const char* message) {
  cudaGetLastError();  // clears what is not sticky; a sticky error shows in usable_
  const bool usable = usable_();
  if (!usable) healthy_.store(false, std::memory_order_relaxed);
  return MakeError(Reason::kInternal, FirstLine(message) + (usable ? "" : "; the device is lost"));
}

}  // namespace castor

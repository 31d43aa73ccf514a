// Errors at the engine's interfaces: an absl::Status whose payloads have a reason from a closed
// list, the wrong field, and when to try again.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace castor {

// The reason of an error. The wire has its name as google.rpc.ErrorInfo.reason. The list is closed,
// documented in proto/README.md, and used as a metric label.
enum class Reason {
  kInvalidField,        // INVALID_ARGUMENT: a field out of range, or fields that disagree
  kMalformedMessage,    // INVALID_ARGUMENT: bytes that are not protobuf
  kNonFiniteInput,      // INVALID_ARGUMENT: NaN or Inf in the input, or necessarily in the result
  kModelNotFound,       // NOT_FOUND
  kRegionNotFound,      // NOT_FOUND: no shared-memory region of that name is registered
  kKernelNotAvailable,  // FAILED_PRECONDITION: this model or device cannot run that kernel
  kModelControlOff,     // FAILED_PRECONDITION: this model is not loaded or unloaded on request
  kModelFailed,         // FAILED_PRECONDITION: its directory cannot be loaded
  kRegionExists,        // FAILED_PRECONDITION: a region of that name is registered already
  kSharedMemoryOff,     // FAILED_PRECONDITION: the server was started without it
  kQueueFull,           // RESOURCE_EXHAUSTED: over a budget now; try again later
  kTooLarge,            // RESOURCE_EXHAUSTED: over a budget by itself; do not try again
  kOutOfMemory,         // RESOURCE_EXHAUSTED: the device had no memory for it
  kTooManyRegions,      // RESOURCE_EXHAUSTED: no room for another shared-memory region
  kDeadlineExceeded,    // DEADLINE_EXCEEDED
  kCancelled,           // CANCELLED
  kDraining,            // UNAVAILABLE: starting or stopping; try elsewhere
  kModelLoading,        // UNAVAILABLE: being loaded, or just replaced; try again
  kNotServed,           // UNIMPLEMENTED: in the contract, but not in this server yet
  kUnauthenticated,     // UNAUTHENTICATED: the caller is not known
  kPermissionDenied,    // PERMISSION_DENIED: this caller may not do this
  kInternal,            // INTERNAL: a fault of the server
};

// "INVALID_FIELD" and so on.
std::string_view NameOf(Reason reason);

// The status code that goes with the reason.
absl::StatusCode CodeOf(Reason reason);

// An error for `reason`.
absl::Status MakeError(Reason reason, std::string_view message);

// The path of an element of a repeated field: "query.shape[2]" for "query.shape" and 2.
std::string FieldAt(std::string_view field, size_t index);

// INVALID_FIELD at `field`, a path as on the wire, such as "query.shape[2]".
absl::Status InvalidField(std::string_view field, std::string_view problem);

// The same with another reason of code INVALID_ARGUMENT.
absl::Status InvalidField(Reason reason, std::string_view field, std::string_view problem);

// An error of InvalidField with another name for its field.
absl::Status RenameField(const absl::Status& error, std::string_view field);

// QUEUE_FULL with a hint when to return.
absl::Status QueueFull(std::string_view message, std::chrono::milliseconds retry_after);

// Adds such a hint to an error.
absl::Status WithRetryAfter(absl::Status error, std::chrono::milliseconds retry_after);

// MODEL_LOADING for the model of that name, and when to return.
absl::Status ModelLoading(std::string_view model, std::chrono::milliseconds retry_after);

// Read the payloads of the functions above. ReasonOf falls back to a reason that suits the code.
Reason ReasonOf(const absl::Status& status);
std::optional<std::string> FieldOf(const absl::Status& status);
std::optional<std::string> LoadingModelOf(const absl::Status& status);
std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status);

}  // namespace castor

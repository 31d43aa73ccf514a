// Errors as they cross the engine's interfaces: an absl::Status whose payloads say which field is
// wrong, for which reason from a closed list, and when to try again.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace castor {

// Why a request was refused. The wire carries the name as google.rpc.ErrorInfo.reason; the list is
// closed, documented in proto/README.md, and used as a metric label.
enum class Reason {
  kInvalidField,      // INVALID_ARGUMENT: a field out of range, or fields that disagree
  kMalformedMessage,  // INVALID_ARGUMENT: bytes that are not protobuf
  kNonFiniteInput,    // INVALID_ARGUMENT: NaN or Inf where they are refused, or can only lead there
  kModelNotFound,     // NOT_FOUND
  kRegionNotFound,    // NOT_FOUND: no shared-memory region of that name is registered
  kKernelNotAvailable,  // FAILED_PRECONDITION: this model or device cannot run that kernel
  kModelControlOff,     // FAILED_PRECONDITION
  kRegionExists,        // FAILED_PRECONDITION: a region of that name is registered already
  kSharedMemoryOff,     // FAILED_PRECONDITION: the server was started without it
  kQueueFull,           // RESOURCE_EXHAUSTED: over a budget; try again later
  kTooLarge,            // RESOURCE_EXHAUSTED: over a budget even alone; never try again
  kOutOfMemory,         // RESOURCE_EXHAUSTED: the device had no memory for it
  kTooManyRegions,      // RESOURCE_EXHAUSTED: no room for another shared-memory region
  kDeadlineExceeded,    // DEADLINE_EXCEEDED
  kCancelled,           // CANCELLED
  kDraining,            // UNAVAILABLE: starting or stopping; try elsewhere
  kNotServed,           // UNIMPLEMENTED: in the contract, but not in this server yet
  kUnauthenticated,     // UNAUTHENTICATED: it is not known who calls
  kPermissionDenied,    // PERMISSION_DENIED: this caller may not
  kInternal,            // INTERNAL: a fault of ours
};

// "INVALID_FIELD" and so on.
std::string_view NameOf(Reason reason);

// The status code that goes with the reason.
absl::StatusCode CodeOf(Reason reason);

// An error for `reason`.
absl::Status MakeError(Reason reason, std::string_view message);

// The path of a repeated field's element: "query.shape", 2 is "query.shape[2]".
std::string FieldAt(std::string_view field, size_t index);

// INVALID_FIELD at `field`, a path as on the wire, such as "query.shape[2]".
absl::Status InvalidField(std::string_view field, std::string_view problem);

// The same with another reason of code INVALID_ARGUMENT.
absl::Status InvalidField(Reason reason, std::string_view field, std::string_view problem);

// An error of InvalidField, with another name of its field.
absl::Status RenameField(const absl::Status& error, std::string_view field);

// QUEUE_FULL with a hint when to return.
absl::Status QueueFull(std::string_view message, std::chrono::milliseconds retry_after);

// Adds such a hint to an error.
absl::Status WithRetryAfter(absl::Status error, std::chrono::milliseconds retry_after);

// Read what the functions above put in. ReasonOf falls back to a reason that suits the code.
Reason ReasonOf(const absl::Status& status);
std::optional<std::string> FieldOf(const absl::Status& status);
std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status);

}  // namespace castor

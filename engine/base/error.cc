#include "engine/base/error.h"

#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/cord.h"

namespace castor {
namespace {

constexpr char kReasonPayload[] = "castor/reason";
constexpr char kFieldPayload[] = "castor/field";
constexpr char kRetryPayload[] = "castor/retry-after-ms";
constexpr char kModelPayload[] = "castor/model";

struct ReasonRow {
  Reason reason;
  std::string_view name;
  absl::StatusCode code;
};

// In the order of the enumeration. ReasonOf falls back to the first reason with a code.
constexpr std::array<ReasonRow, 22> kReasons = {{
    {Reason::kInvalidField, "INVALID_FIELD", absl::StatusCode::kInvalidArgument},
    {Reason::kMalformedMessage, "MALFORMED_MESSAGE", absl::StatusCode::kInvalidArgument},
    {Reason::kNonFiniteInput, "NON_FINITE_INPUT", absl::StatusCode::kInvalidArgument},
    {Reason::kModelNotFound, "MODEL_NOT_FOUND", absl::StatusCode::kNotFound},
    {Reason::kRegionNotFound, "REGION_NOT_FOUND", absl::StatusCode::kNotFound},
    {Reason::kKernelNotAvailable, "KERNEL_NOT_AVAILABLE", absl::StatusCode::kFailedPrecondition},
    {Reason::kModelControlOff, "MODEL_CONTROL_OFF", absl::StatusCode::kFailedPrecondition},
    {Reason::kModelFailed, "MODEL_FAILED", absl::StatusCode::kFailedPrecondition},
    {Reason::kRegionExists, "REGION_EXISTS", absl::StatusCode::kFailedPrecondition},
    {Reason::kSharedMemoryOff, "SHARED_MEMORY_OFF", absl::StatusCode::kFailedPrecondition},
    {Reason::kQueueFull, "QUEUE_FULL", absl::StatusCode::kResourceExhausted},
    {Reason::kTooLarge, "TOO_LARGE", absl::StatusCode::kResourceExhausted},
    {Reason::kOutOfMemory, "OUT_OF_MEMORY", absl::StatusCode::kResourceExhausted},
    {Reason::kTooManyRegions, "TOO_MANY_REGIONS", absl::StatusCode::kResourceExhausted},
    {Reason::kDeadlineExceeded, "DEADLINE_EXCEEDED", absl::StatusCode::kDeadlineExceeded},
    {Reason::kCancelled, "CANCELLED", absl::StatusCode::kCancelled},
    {Reason::kDraining, "DRAINING", absl::StatusCode::kUnavailable},
    {Reason::kModelLoading, "MODEL_LOADING", absl::StatusCode::kUnavailable},
    {Reason::kNotServed, "NOT_SERVED", absl::StatusCode::kUnimplemented},
    {Reason::kUnauthenticated, "UNAUTHENTICATED", absl::StatusCode::kUnauthenticated},
    {Reason::kPermissionDenied, "PERMISSION_DENIED", absl::StatusCode::kPermissionDenied},
    {Reason::kInternal, "INTERNAL", absl::StatusCode::kInternal},
}};

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

const ReasonRow& RowOf(Reason reason) { return kReasons[static_cast<size_t>(reason)]; }

std::optional<std::string> PayloadOf(const absl::Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

}  // namespace

std::string_view NameOf(Reason reason) { return RowOf(reason).name; }

absl::StatusCode CodeOf(Reason reason) { return RowOf(reason).code; }

absl::Status MakeError(Reason reason, std::string_view message) {
  absl::Status status(CodeOf(reason), ToAbsl(message));
  status.SetPayload(kReasonPayload, absl::Cord(ToAbsl(NameOf(reason))));
  return status;
}

std::string FieldAt(std::string_view field, size_t index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

absl::Status InvalidField(std::string_view field, std::string_view problem) {
  return InvalidField(Reason::kInvalidField, field, problem);
}

absl::Status InvalidField(Reason reason, std::string_view field, std::string_view problem) {
  absl::Status status = MakeError(reason, std::string(field) + ": " + std::string(problem));
  status.SetPayload(kFieldPayload, absl::Cord(ToAbsl(field)));
  return status;
}

absl::Status RenameField(const absl::Status& error, std::string_view field) {
  std::string_view problem(error.message().data(), error.message().size());
  const std::string old = FieldOf(error).value_or("");
  if (problem.starts_with(old + ": ")) problem.remove_prefix(old.size() + 2);
  return InvalidField(ReasonOf(error), field, problem);
}

absl::Status QueueFull(std::string_view message, std::chrono::milliseconds retry_after) {
  return WithRetryAfter(MakeError(Reason::kQueueFull, message), retry_after);
}

absl::Status WithRetryAfter(absl::Status error, std::chrono::milliseconds retry_after) {
  error.SetPayload(kRetryPayload, absl::Cord(std::to_string(retry_after.count())));
  return error;
}

absl::Status ModelLoading(std::string_view model, std::chrono::milliseconds retry_after) {
  absl::Status status =
      MakeError(Reason::kModelLoading, "model \"" + std::string(model) + "\" is being loaded");
  status.SetPayload(kModelPayload, absl::Cord(ToAbsl(model)));
  return WithRetryAfter(std::move(status), retry_after);
}

Reason ReasonOf(const absl::Status& status) {
  if (const auto name = PayloadOf(status, kReasonPayload)) {
    for (const ReasonRow& row : kReasons) {
      if (row.name == *name) return row.reason;
    }
  }
  for (const ReasonRow& row : kReasons) {
    if (row.code == status.code()) return row.reason;
  }
  return Reason::kInternal;
}

std::optional<std::string> FieldOf(const absl::Status& status) {
  return PayloadOf(status, kFieldPayload);
}

std::optional<std::string> LoadingModelOf(const absl::Status& status) {
  return PayloadOf(status, kModelPayload);
}

std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status) {
  const auto text = PayloadOf(status, kRetryPayload);
  int64_t milliseconds = 0;
  if (!text ||
      std::from_chars(text->data(), text->data() + text->size(), milliseconds).ec != std::errc()) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(milliseconds);
}

}  // namespace castor

// The one place where an error of the engine becomes an error on the wire.
//
// Every refusal carries google.rpc details, of a call in the trailer `grpc-status-details-bin`, of
// a stream's message in its answer: ErrorInfo with the reason from a closed list, BadRequest with
// the field's path if a field is to blame, RetryInfo if a retry makes sense, RequestInfo with the
// caller's id. Everything is stateless and may be called from any thread.
#pragma once

#include <grpcpp/support/status.h>

#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "server/transport/call.h"

namespace castor::server {

// The domain of every ErrorInfo.
inline constexpr std::string_view kErrorDomain = "castor";

// Texts in details are cut to this many bytes. A message may repeat a long text of the caller's;
// this way status, message and details together stay below the 8 KiB of metadata that clients
// accept by default.
inline constexpr size_t kMaxMessageBytes = 768;
inline constexpr size_t kMaxFieldBytes = 256;
inline constexpr size_t kMaxRequestIdBytes = 256;

// The ids of a request for its log lines; empty: unknown.
struct RequestIds {
  std::string_view request_id;
  std::string trace_id{};  // in hexadecimal
  std::string span_id{};
};

// Whether OpenTelemetry's conventions count it as an error of the server, not of its caller or of
// the load.
bool IsServerError(grpc::StatusCode code);

// An error as its caller sees it. A server fault (INTERNAL, and any code outside the contract) is
// logged in full under a random id, and the caller gets only that id.
google::rpc::Status ToDetails(const absl::Status& status, const RequestIds& ids);

// The same as the end of a call. OK becomes OK.
grpc::Status ToGrpcStatus(const absl::Status& status, const RequestIds& ids);

// The value of the trailer `grpc-retry-pushback-ms`, which gRPC's own retries obey: milliseconds to
// wait, or "-1" if a retry cannot help. Nothing for errors that are not about load.
std::optional<std::string> RetryPushback(const absl::Status& status);

// Both of the above: adds the trailer to `call`, which must not have been finished yet, and
// returns the status to finish it with.
grpc::Status RefuseCall(const absl::Status& status, const RequestIds& ids, Call* call);

// Needs no memory: the text is short.
inline grpc::Status OutOfMemory() {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, "out of memory"};
}

// The result of `tell`, or OUT_OF_MEMORY if it has no memory. `tell` must throw nothing else.
template <typename Tell>
auto OrOutOfMemory(Tell&& tell) noexcept -> decltype(tell()) {
  try {
    return tell();
  } catch (const std::bad_alloc&) {
    if constexpr (std::is_same_v<decltype(tell()), grpc::Status>) {
      return OutOfMemory();
    } else {
      decltype(tell()) told;
      told.set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
      return told;
    }
  }
}

// "INVALID_ARGUMENT" and so on: the metric label and log field of a status code.
std::string NameOf(grpc::StatusCode code);

// `text` in a form for log lines and HTTP/2 headers: printable ASCII, other bytes as '?', at most
// `max_bytes` long, with an ellipsis if something was cut.
std::string Printable(std::string_view text, size_t max_bytes);

}  // namespace castor::server

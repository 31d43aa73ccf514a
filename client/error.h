// Errors as callers of the client see them: the status code and the server's google.rpc details.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace castor::client {

struct Error {
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  // Of the closed list in proto/README.md. Empty when castor-server did not send one: the error
  // then comes from gRPC on either side, or from something in between, and does not say whether the
  // call was run.
  std::string reason;
  std::string field;  // path of the field to blame, such as "query.shape[2]"; may be empty
  std::string message;
  std::optional<std::chrono::milliseconds> retry_after;  // the delay that the server asks for
  std::string request_id;
  // That were made. 0: none, for what is wrong is on this side: a file, or the token.
  int attempts = 1;

  // One line that a terminal may see, whatever the server wrote: code, reason, field, message.
  std::string ToString() const;
};

// "INVALID_ARGUMENT" and so on.
std::string_view NameOf(grpc::StatusCode code);

// Reads the details of a status that is not OK, of a call or of one message of a stream. Details
// that are missing or malformed leave the fields they would fill empty.
Error ParseError(const grpc::Status& status);
Error ParseError(const google::rpc::Status& status);

// An error of this side: nothing was sent.
Error LocalError(const absl::Status& status);

// The error of a message that cannot be sent; nullopt: it can. protobuf ends at 2 GiB, and gRPC
// would end the process.
std::optional<Error> CheckSize(const google::protobuf::MessageLite& message);

// A value or the error that took its place.
template <typename T>
class Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT: implicit, so that calls can return it
  Result(Error error) : state_(std::move(error)) {}  // NOLINT

  bool ok() const { return std::holds_alternative<T>(state_); }

  // Require ok().
  T& operator*() & { return std::get<T>(state_); }
  const T& operator*() const& { return std::get<T>(state_); }
  T&& operator*() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }

  // Requires !ok().
  const Error& error() const { return std::get<Error>(state_); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace castor::client

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
  // One of the list in proto/README.md. Empty when castor-server sent none: the error then comes
  // from gRPC on either side, or from a proxy, and does not say whether the call ran.
  std::string reason;
  std::string field;  // path of the wrong field, such as "query.shape[2]"; may be empty
  std::string message;
  std::optional<std::chrono::milliseconds> retry_after;  // the delay that the server asks for
  std::string request_id;
  // The number of attempts. 0: nothing was sent, because a local file or the token is wrong.
  int attempts = 1;

  // Code, reason, field and message on one line, without control characters.
  std::string ToString() const;
};

// "INVALID_ARGUMENT" and so on.
std::string_view NameOf(grpc::StatusCode code);

// Reads the details of a status that is not OK, of a call or of one message of a stream. Missing
// and malformed details leave their fields empty.
Error ParseError(const grpc::Status& status);
Error ParseError(const google::rpc::Status& status);

// An error of this process: nothing was sent.
Error LocalError(const absl::Status& status);

// The error of a message above protobuf's limit of 2 GiB, for which gRPC would end the process;
// nullopt if it can be sent.
std::optional<Error> CheckSize(const google::protobuf::MessageLite& message);

// A value or an error.
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

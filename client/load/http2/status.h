// How a call ended, from what HTTP/2 and gRPC say of it.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace castor::load {

// The fields of a response's headers and trailers that tell, as they came.
struct EndFields {
  int http_status = 0;   // 0: none came
  int grpc_status = -1;  // -1: none came, or it is no number
  std::string message;   // percent-encoded
  std::string details;   // base64

  // Forgets all, and keeps the memory.
  void Clear();
  // Takes a field if it is one of these.
  void Take(std::string_view name, std::string_view value);
};

// Of a stream that has ended, with HTTP/2's error code (0: none), by gRPC's rules for both.
grpc::Status StatusOf(const EndFields& fields, uint32_t http2_error);

}  // namespace castor::load

// A request as it goes over the wire, built before the run and sent again and again: sending it
// costs no serialising.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>

#include "client/cli/command.h"

namespace castor::load {

inline constexpr char kAttendMethod[] = "/castor.v1.AttentionService/Attend";
inline constexpr char kEncodeMethod[] = "/castor.v1.EncoderService/Encode";

struct Payload {
  bool encode = false;  // or attend
  grpc::Slice message{};
  int64_t tokens = 0;  // in the request; 0: the answer alone knows

  const char* method() const { return encode ? kEncodeMethod : kAttendMethod; }
};

// An error of the server, or of the connection to it: not of what this side was told.
class ServerError : public cli::Failure {
 public:
  explicit ServerError(const std::string& message) : Failure(message, cli::kServerError) {}
};

}  // namespace castor::load

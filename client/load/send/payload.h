// A request as it goes over the wire, built before the run and sent again and again: sending it
// costs no serialising.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>

namespace castor::load {

inline constexpr char kAttendMethod[] = "/castor.v1.AttentionService/Attend";
inline constexpr char kEncodeMethod[] = "/castor.v1.EncoderService/Encode";

struct Payload {
  bool encode = false;  // or attend
  grpc::Slice message{};
  int64_t tokens = 0;  // in the request; 0: the answer alone knows

  const char* method() const { return encode ? kEncodeMethod : kAttendMethod; }
};

}  // namespace castor::load

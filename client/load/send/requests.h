// The requests that a class describes: equal seeds give equal requests.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/command.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// A request as it goes over the wire, built before the run and sent again and again: sending it
// costs no serialising.
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

// One request. Throw cli::UsageError when a file cannot be read, and when the request would not fit
// a message; that is checked before anything is allocated. `texts`: of the class's file, if any.
v1::AttendRequest MakeAttend(const ClassSpec& spec, uint64_t seed);
v1::EncodeRequest MakeEncode(const ClassSpec& spec, const std::vector<std::string>& texts,
                             uint64_t seed);

// The seed of a class's payload.
uint64_t SeedOf(uint64_t seed, const ClassSpec& spec, size_t payload);

// All payloads of all classes. Throws what those above throw, and cli::UsageError when they take
// more than 4 GiB of memory.
std::vector<std::vector<Payload>> MakePayloads(const std::vector<ClassSpec>& classes,
                                               uint64_t seed);

}  // namespace castor::load

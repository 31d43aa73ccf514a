// Builds the requests of a class. Equal seeds give equal requests.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
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
  int64_t tokens = 0;  // in the request; 0: only the answer knows

  const char* method() const { return encode ? kEncodeMethod : kAttendMethod; }
};

// An error of the server, or of the connection to it.
class ServerError : public cli::Failure {
 public:
  explicit ServerError(const std::string& message) : Failure(message, cli::kServerError) {}
};

// One request of a class of attention. Throws cli::UsageError, before anything is allocated, when
// it would exceed a message.
v1::AttendRequest MakeAttend(const ClassSpec& spec, uint64_t seed);

// All payloads of all classes. Throws cli::UsageError when a file cannot be read, when a request
// would exceed a message, and when the payloads take more than 4 GiB of memory.
std::vector<std::vector<Payload>> MakePayloads(const std::vector<ClassSpec>& classes,
                                               uint64_t seed);

}  // namespace castor::load

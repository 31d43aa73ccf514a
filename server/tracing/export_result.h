// What a collector's answer to an export means, by the rules of OTLP. Pure functions.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace castor::server {

struct ExportResult {
  enum class Kind {
    kTaken,     // all of it, or all but `rejected` spans, which are never sent again
    kTryAgain,  // not before `delay`, if there is one
    kRefused,   // for good
  };
  Kind kind = Kind::kTaken;
  int64_t rejected = 0;
  std::optional<std::chrono::milliseconds> delay;
  std::string message;  // for the log
};

// `answer` is read if the status is OK. CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE,
// UNAVAILABLE and DATA_LOSS may be tried again, RESOURCE_EXHAUSTED if it says when.
ExportResult ReadExportResult(const grpc::Status& status, const grpc::ByteBuffer& answer);

}  // namespace castor::server

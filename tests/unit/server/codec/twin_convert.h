// Converts protobuf's messages to the engine's requests, field by field, written only from the
// comments of proto/castor/v1. Views in the results point into the messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "engine/request.h"

namespace castor::server::twin {

// A shared-memory region that is registered while requests are compared; none is a real file.
struct TwinRegion {
  const char* name;
  int64_t offset;  // in the file
  int64_t size;
};
inline constexpr TwinRegion kTwinRegions[] = {{"r", 100, 4096}, {"huge", 7, INT64_MAX - 7}};
inline constexpr int kTwinDescriptor = -1;
inline constexpr char kTwinTenant[] = "twin";

struct Attend {
  AttentionRequest request;
  std::optional<FileRange> output;
  std::optional<std::chrono::milliseconds> timeout;
};
struct Encode {
  EncodeRequest request;
  std::optional<std::chrono::milliseconds> timeout;
};

absl::StatusOr<Attend> ToEngine(const v1::AttendRequest& message);
absl::StatusOr<Encode> ToEngine(const v1::EncodeRequest& message);

}  // namespace castor::server::twin

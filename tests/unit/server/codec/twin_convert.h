// Protobuf's messages to the engine's requests, written field by field from the comments of
// proto/castor/v1 and from nothing else. Views in the results point into the messages.
#pragma once

#include "absl/status/statusor.h"
#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "engine/request.h"

namespace castor::server::twin {

absl::StatusOr<AttentionRequest> ToEngine(const v1::AttendRequest& message);
absl::StatusOr<EncodeRequest> ToEngine(const v1::EncodeRequest& message);

}  // namespace castor::server::twin

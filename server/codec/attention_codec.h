// AttendRequest and AttendResponse between their bytes and the engine's types. On the wire they are
// ordinary protobuf; the tensors are neither copied nor looked at on the way in or out.
//
// Pure functions; any thread may call them.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "engine/request.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/codec/slice_view.h"

namespace castor::server {

struct DecodedAttend {
  AttentionRequest request;  // its tensors' pieces point into `slices`
  SliceView slices;
};

// Errors: MALFORMED_MESSAGE for bytes that protobuf's parser refuses, with the byte and the field;
// INVALID_FIELD and NOT_SERVED for what only the wire can express (see convert.h); TOO_LARGE for
// more repeated elements than WireReader::kMaxElements. What the values mean for a kernel is for
// the engine to check. On an error request.call.request_id is set if it was read.
absl::Status DecodeAttendRequest(const grpc::ByteBuffer& bytes, DecodedAttend* out);

// The output's memory becomes part of the answer and goes back to its pool when gRPC has sent it.
// `total_us`: from the request's bytes to now.
grpc::ByteBuffer EncodeAttendResponse(std::string_view request_id, AttentionResult result,
                                      double total_us);

}  // namespace castor::server

// Converts AttendRequest and AttendResponse between bytes and the engine's types. On the wire they
// are ordinary protobuf. Tensors are neither copied nor inspected on the way in or out.
//
// Any thread may call the functions; the only argument that they modify is `out`.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "engine/request.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/codec/messages.h"
#include "server/codec/regions.h"
#include "server/codec/slice_view.h"

namespace castor::server {

struct DecodedAttend {
  // Its tensors' pieces point into `slices`; `regions` keeps their files open.
  AttentionRequest request;
  SliceView slices;
  RequestRegions regions;
  std::optional<OutputRange> output;  // where to write the output's elements; unset: in the answer
  std::optional<std::chrono::milliseconds> timeout;  // from the message's arrival
};

// Errors: MALFORMED_MESSAGE for bytes that protobuf's parser refuses, with the byte and the field;
// INVALID_FIELD and NOT_SERVED for what only the wire can express (see convert.h), and at a
// repeated field with more elements than it may have; QUEUE_FULL if the budget has no room for the
// message. References to shared memory give the errors in regions.h, and INVALID_FIELD if the
// output range is not as large as the output. The engine checks what the values mean for a kernel.
// On an error, request.call.request_id is set if it was read.
absl::Status DecodeAttendRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                 DecodedAttend* out);

// The same of a message that another codec has read, but for its request_id. `out` holds what the
// message points into.
absl::Status ConvertAttendRequest(wire::AttendRequest from, DecodedAttend* out);

// The tensors' memory becomes part of the answer and goes back to its pool when gRPC has sent it.
// `total_us`: from the arrival of the request's bytes to now.
grpc::ByteBuffer EncodeAttendResponse(std::string_view request_id, AttentionResult result,
                                      double total_us);

// The same for an output whose elements have been written to `output`.
grpc::ByteBuffer EncodeAttendResponse(std::string_view request_id, AttentionResult result,
                                      const OutputRange& output, double total_us);

}  // namespace castor::server

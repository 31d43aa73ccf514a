// EncodeRequest and EncodeResponse between their bytes and the engine's types. On the wire they are
// ordinary protobuf; texts and tensors are neither copied nor interpreted on the way in or out.
//
// Pure functions; any thread may call them.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "engine/request.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/codec/slice_view.h"

namespace castor::server {

struct DecodedEncode {
  EncodeRequest request;  // its texts and pieces point into `slices`
  SliceView slices;
};

// Errors as DecodeAttendRequest's, in attention_codec.h.
absl::Status DecodeEncodeRequest(const grpc::ByteBuffer& bytes, DecodedEncode* out);

// As EncodeAttendResponse.
grpc::ByteBuffer EncodeEncodeResponse(std::string_view request_id, EncodeResult result,
                                      double total_us);

}  // namespace castor::server

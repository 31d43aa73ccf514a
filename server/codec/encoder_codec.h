// Converts the messages of Encode, Tokenize and Detokenize between bytes and the engine's types. On
// the wire they are ordinary protobuf. Texts and tensors are neither copied nor interpreted on the
// way in or out.
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

struct DecodedEncode {
  // Its texts and pieces point into `slices`; `regions` keeps its embeddings' file open.
  EncodeRequest request;
  SliceView slices;
  RequestRegions regions;
  std::optional<std::chrono::milliseconds> timeout;  // from the message's arrival
};

// Errors are those of DecodeAttendRequest in attention_codec.h.
absl::Status DecodeEncodeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                 DecodedEncode* out);

// The same of a message that another codec has read, but for its request_id. `out` holds what the
// message points into.
absl::Status ConvertEncodeRequest(wire::EncodeRequest from, DecodedEncode* out);

// As EncodeAttendResponse.
grpc::ByteBuffer EncodeEncodeResponse(std::string_view request_id, EncodeResult result,
                                      double total_us);

// Tokenize and Detokenize: to the engine they are requests whose texts or ids go through the
// model's tokenizer alone.

// Errors are those of DecodeEncodeRequest.
absl::Status DecodeTokenizeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                   DecodedEncode* out);
absl::Status DecodeDetokenizeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                     DecodedEncode* out);

// The results must have `tokenized`.
grpc::ByteBuffer EncodeTokenizeResponse(std::string_view request_id, EncodeResult result);
grpc::ByteBuffer EncodeDetokenizeResponse(std::string_view request_id, EncodeResult result);

}  // namespace castor::server

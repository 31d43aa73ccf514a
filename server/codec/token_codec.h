// Tokenize and Detokenize: their messages from and to bytes. To the engine they are requests whose
// texts or ids go through the model's tokenizer alone.
//
// Any thread may call the functions; the only argument that they modify is `out`.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/codec/encoder_codec.h"
#include "server/codec/messages.h"

namespace castor::server {

// Errors are those of DecodeEncodeRequest.
absl::Status DecodeTokenizeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                   DecodedEncode* out);
absl::Status DecodeDetokenizeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                     DecodedEncode* out);

// The results must have `tokenized`.
grpc::ByteBuffer EncodeTokenizeResponse(std::string_view request_id, EncodeResult result);
grpc::ByteBuffer EncodeDetokenizeResponse(std::string_view request_id, EncodeResult result);

}  // namespace castor::server

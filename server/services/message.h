// Small messages between bytes and protobuf.
//
// Castor's methods are raw ones throughout: a typed callback method of this gRPC answers bytes that
// do not parse with UNIMPLEMENTED and an empty message, where the contract says INVALID_ARGUMENT.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace castor::server {

// INVALID_ARGUMENT, MALFORMED_MESSAGE when the bytes are no such message.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

grpc::ByteBuffer SerializeMessage(const google::protobuf::Message& message);

}  // namespace castor::server

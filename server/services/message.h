// Parses and serialises small messages.
//
// All of Castor's methods are raw ones. When bytes do not parse, a typed callback method of this
// gRPC answers UNIMPLEMENTED with an empty message, but the contract says INVALID_ARGUMENT.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace castor::server {

// Parsing copies, and beyond the transport's bounds.
inline constexpr size_t kMaxSmallMessageBytes = 64 << 10;

// MALFORMED_MESSAGE if the bytes do not parse; TOO_LARGE for more than those.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// A message whose memory is given back as a whole. One with a map needs that: when an allocation
// has failed in it, protobuf cannot destroy it.
template <typename Message>
class InArena {
 public:
  Message& operator*() { return message_; }
  Message* operator->() { return &message_; }

 private:
  google::protobuf::Arena arena_;
  Message& message_ = *google::protobuf::Arena::CreateMessage<Message>(&arena_);
};

grpc::ByteBuffer SerializeMessage(const google::protobuf::Message& message);

}  // namespace castor::server

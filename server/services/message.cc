#include "server/services/message.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <string>

#include "engine/base/error.h"

namespace castor::server {

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  if (bytes.Length() > kMaxSmallMessageBytes) {
    return MakeError(Reason::kTooLarge, "the limit for messages of this method is " +
                                            std::to_string(kMaxSmallMessageBytes) + " bytes");
  }
  grpc::ByteBuffer copy = bytes;  // adds a reference; the reader needs it mutable
  bool parsed = false;
  if (copy.Valid()) {
    grpc::ProtoBufferReader reader(&copy);
    parsed = reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
  }
  if (parsed) return absl::OkStatus();
  return MakeError(Reason::kMalformedMessage,
                   "the bytes are not a valid " + message->GetDescriptor()->full_name());
}

grpc::ByteBuffer SerializeMessage(const google::protobuf::Message& message) {
  grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace castor::server

#include "server/codec/token_codec.h"

#include <string>
#include <utility>
#include <vector>

#include "castor/v1/encoder.pb.h"
#include "engine/base/error.h"
#include "server/codec/convert.h"
#include "server/codec/response.h"

namespace castor::server {
namespace {

template <typename Message>
absl::Status Read(const grpc::ByteBuffer& bytes, const DecodeScope& scope, Message* message,
                  DecodedEncode* out) {
  out->slices = SliceView(bytes, scope.budget);
  absl::Status status = wire::Parse(&out->slices, message);
  status.Update(ConvertRequestId(message->request_id, &out->request.call));
  return status;
}

template <typename Response>
Response Begin(std::string_view request_id, const EncodeResult& result) {
  Response message;
  message.set_request_id(request_id.data(), request_id.size());
  message.set_model(result.model);
  return message;
}

}  // namespace

absl::Status DecodeTokenizeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                   DecodedEncode* out) {
  wire::TokenizeRequest from;
  if (absl::Status s = Read(bytes, scope, &from, out); !s.ok()) return s;
  if (from.max_tokens != 0 && !from.truncate.value_or(false)) {
    return InvalidField("max_tokens", "has no meaning without truncate");
  }
  wire::EncodeRequest request;
  static_cast<wire::TextOptions&>(request) = from;
  request.input = from.texts.value_or(wire::TextBatch());
  request.truncate = from.truncate.value_or(false);
  out->request.instead = TokenizeOnly{.add_special_tokens = from.add_special_tokens.value_or(true),
                                      .return_tokens = from.return_tokens};
  return ConvertEncodeRequest(std::move(request), out);
}

absl::Status DecodeDetokenizeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                     DecodedEncode* out) {
  wire::DetokenizeRequest from;
  if (absl::Status s = Read(bytes, scope, &from, out); !s.ok()) return s;
  wire::EncodeRequest request;
  request.model = from.model;
  request.input = from.tokens.value_or(wire::TokenBatch());
  request.priority = from.priority;
  request.timeout_ms = from.timeout_ms;
  out->request.instead = DetokenizeOnly{.skip_special_tokens = from.skip_special_tokens};
  return ConvertEncodeRequest(std::move(request), out);
}

grpc::ByteBuffer EncodeTokenizeResponse(std::string_view request_id, EncodeResult result) {
  auto message = Begin<v1::TokenizeResponse>(request_id, result);
  Tokenized& from = *result.tokenized;
  message.mutable_ids()->Assign(from.ids.begin(), from.ids.end());
  message.mutable_type_ids()->Assign(from.type_ids.begin(), from.type_ids.end());
  message.mutable_lengths()->Assign(from.lengths.begin(), from.lengths.end());
  message.mutable_special()->Assign(from.special.begin(), from.special.end());
  message.mutable_pair()->Assign(from.pair.begin(), from.pair.end());
  for (const Tokenized::Range& range : from.bytes) {
    message.add_byte_begins(range.begin);
    message.add_byte_ends(range.end);
  }
  for (const Tokenized::Range& range : from.characters) {
    message.add_character_begins(range.begin);
    message.add_character_ends(range.end);
  }
  for (std::string& token : from.tokens) message.add_tokens(std::move(token));
  message.mutable_truncated()->Assign(from.truncated.begin(), from.truncated.end());
  message.set_prompt_name(std::move(result.prompt_name));
  return WithTensors(message, {});
}

grpc::ByteBuffer EncodeDetokenizeResponse(std::string_view request_id, EncodeResult result) {
  auto message = Begin<v1::DetokenizeResponse>(request_id, result);
  for (std::string& text : result.tokenized->texts) message.add_texts(std::move(text));
  return WithTensors(message, {});
}

}  // namespace castor::server

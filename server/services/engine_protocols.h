// The wire formats of castor.v1's requests to the engine, as EngineRequest's protocols. Only
// RerankProtocol has state: what its answer needs of the request.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "server/codec/attention_codec.h"
#include "server/codec/encoder_codec.h"
#include "server/codec/rerank_codec.h"
#include "server/services/message.h"

namespace castor::server {

// The kernel that a request names; nullopt if it leaves the choice to the engine.
inline std::optional<KernelName> NamedKernel(const Kernel& kernel) {
  if (std::holds_alternative<Automatic>(kernel)) return std::nullopt;
  return castor::NameOf(kernel);
}

// The answer to one message of a stream that has none.
template <typename Response>
grpc::ByteBuffer EncodeError(std::string_view request_id, google::rpc::Status error) {
  Response response;
  response.set_request_id(request_id.data(), request_id.size());
  *response.mutable_error() = std::move(error);
  return SerializeMessage(response);
}

struct AttendProtocol {
  using Decoded = DecodedAttend;
  using Result = AttentionResult;

  static absl::Status Decode(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                             DecodedAttend* decoded) {
    return DecodeAttendRequest(bytes, scope, decoded);
  }
  static std::optional<KernelName> RequestedKernel(const DecodedAttend& decoded) {
    return NamedKernel(decoded.request.kernel);
  }
  static std::optional<OutputRange> TakeOutput(DecodedAttend& decoded) {
    return std::move(decoded.output);
  }
  static grpc::ByteBuffer Encode(std::string_view request_id, AttentionResult result,
                                 const std::optional<OutputRange>& output, double total_us) {
    if (output.has_value()) {
      return EncodeAttendResponse(request_id, std::move(result), *output, total_us);
    }
    return EncodeAttendResponse(request_id, std::move(result), total_us);
  }
  static grpc::ByteBuffer EncodeError(std::string_view request_id, google::rpc::Status error) {
    return server::EncodeError<v1::AttendResponse>(request_id, std::move(error));
  }
};

struct EncodeProtocol {
  using Decoded = DecodedEncode;
  using Result = EncodeResult;

  static absl::Status Decode(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                             DecodedEncode* decoded) {
    return DecodeEncodeRequest(bytes, scope, decoded);
  }
  // The model's own kernel is known only from the answer.
  static std::optional<KernelName> RequestedKernel(const DecodedEncode& decoded) {
    if (!decoded.request.kernel.has_value()) return std::nullopt;
    return NamedKernel(*decoded.request.kernel);
  }
  // For texts, the answer's size is not known in advance, so no request can name a place for it.
  static std::optional<OutputRange> TakeOutput(DecodedEncode&) { return std::nullopt; }
  static grpc::ByteBuffer Encode(std::string_view request_id, EncodeResult result,
                                 const std::optional<OutputRange>&, double total_us) {
    return EncodeEncodeResponse(request_id, std::move(result), total_us);
  }
  static grpc::ByteBuffer EncodeError(std::string_view request_id, google::rpc::Status error) {
    return server::EncodeError<v1::EncodeResponse>(request_id, std::move(error));
  }
};

// Runs no kernel.
template <auto kDecode, auto kEncode>
struct TokenProtocol {
  using Decoded = DecodedEncode;
  using Result = EncodeResult;

  static absl::Status Decode(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                             DecodedEncode* decoded) {
    return kDecode(bytes, scope, decoded);
  }
  static std::optional<KernelName> RequestedKernel(const DecodedEncode&) { return std::nullopt; }
  static std::optional<OutputRange> TakeOutput(DecodedEncode&) { return std::nullopt; }
  static grpc::ByteBuffer Encode(std::string_view request_id, EncodeResult result,
                                 const std::optional<OutputRange>&, double) {
    return kEncode(request_id, std::move(result));
  }
};
using TokenizeProtocol = TokenProtocol<DecodeTokenizeRequest, EncodeTokenizeResponse>;
using DetokenizeProtocol = TokenProtocol<DecodeDetokenizeRequest, EncodeDetokenizeResponse>;

class RerankProtocol {
 public:
  using Decoded = DecodedRerank;
  using Result = EncodeResult;

  explicit RerankProtocol(const Engine& engine) : engine_(&engine) {}

  absl::Status Decode(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                      DecodedRerank* decoded) const {
    return DecodeRerankRequest(bytes, scope, *engine_->models(), decoded);
  }
  static std::optional<KernelName> RequestedKernel(const DecodedRerank& decoded) {
    return EncodeProtocol::RequestedKernel(decoded);
  }
  std::optional<OutputRange> TakeOutput(DecodedRerank& decoded) {
    ranking_ = decoded.ranking;
    return std::nullopt;
  }
  grpc::ByteBuffer Encode(std::string_view request_id, EncodeResult result,
                          const std::optional<OutputRange>&, double total_us) const {
    return EncodeRerankResponse(request_id, std::move(result), ranking_, total_us);
  }
  absl::Status Refusal(const absl::Status& error, bool submitted) const {
    return RenameTextFields(error, {}, ranking_.late_interaction, submitted);
  }

 private:
  const Engine* engine_;
  Ranking ranking_;
};

}  // namespace castor::server

// The wire format of one RPC of tei.v1, as EngineRequest's protocol.
#pragma once

#include <google/protobuf/arena.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "server/codec/regions.h"
#include "server/codec/response.h"
#include "server/codec/slice_view.h"
#include "server/services/call.h"
#include "server/tei/messages.h"
#include "server/tei/models.h"
#include "server/tei/wire.h"

namespace castor::server::tei {

// What gRPC's servers take by default, and so the protocol's own.
inline constexpr size_t kMaxMessageBytes = 4 << 20;

// One call's, or one message's of a stream.
template <typename Request, typename Response>
class Protocol {
 public:
  struct Decoded : Converted {
    SliceView slices;               // that the others point into,
    std::list<std::string> copies;  // or, of what came in parts, these
    Request message;
    RequestRegions regions;
    std::optional<std::chrono::milliseconds> timeout;
  };
  using Result = EncodeResult;

  Protocol(const Choice& choice, const ServiceContext& services)
      : choice_(choice), services_(services) {}

  absl::Status Decode(const grpc::ByteBuffer& bytes, TenantRegions, Decoded* decoded) const {
    absl::Status status = choice_.error;
    decoded->request.model = model().name;
    if (status.ok()) status = Read(bytes, &decoded->slices, &decoded->message);
    return status.ok() ? Ask(decoded) : status;
  }

  static std::optional<KernelName> RequestedKernel(const Decoded&) { return std::nullopt; }

  std::optional<OutputRange> TakeOutput(Decoded& decoded) {
    answer_context_ = decoded.answer_context;
    return std::nullopt;
  }

  grpc::ByteBuffer Encode(std::string_view, EncodeResult result, const std::optional<OutputRange>&,
                          double total_us) {
    google::protobuf::Arena arena;
    auto* const message = google::protobuf::Arena::CreateMessage<Response>(&arena);
    Fill(result, answer_context_, model(), message);
    if constexpr (requires { message->mutable_metadata(); }) {
      Fill(result, answer_context_.characters, total_us, message->mutable_metadata());
      headers_ = HeadersOf(message->metadata());
    }
    return WithTensors(*message, {});
  }

  static absl::Status Refusal(const absl::Status& error, bool submitted) {
    return RenameFields(error, submitted, std::same_as<Request, wire::tei::RerankRequest>);
  }

  // The initial metadata of the answer.
  const Headers& headers() const { return headers_; }

 protected:
  const ModelInfo& model() const { return choice_.model; }

  // `message` points into `slices`.
  absl::Status Read(const grpc::ByteBuffer& bytes, SliceView* slices, Request* message) const {
    if (bytes.Length() > kMaxMessageBytes) {
      return MakeError(Reason::kTooLarge, "the limit for messages of this method is " +
                                              std::to_string(kMaxMessageBytes) + " bytes");
    }
    *slices = SliceView(bytes, services_.decoding);
    return wire::Parse(slices, message);
  }

  absl::Status Ask(Decoded* decoded) const {
    decoded->request.model = model().name;
    return Convert(std::move(decoded->message), model(), decoded);
  }

  const Choice& choice_;
  const ServiceContext& services_;

 private:
  AnswerContext answer_context_;
  Headers headers_;
};

// Its parts are one Rerank, but each text has its own query.
class RerankStreamProtocol : public Protocol<wire::tei::RerankRequest, proto::RerankResponse> {
 public:
  using Protocol::Protocol;

  absl::Status Add(const grpc::ByteBuffer& part, const std::string& holder);
  absl::Status Decode(const grpc::ByteBuffer&, TenantRegions, Decoded* decoded);

 private:
  Decoded gathered_;
  int64_t bytes_ = 0;  // of it
  std::shared_ptr<void> held_;
};

}  // namespace castor::server::tei

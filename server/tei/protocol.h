// The wire format of one RPC of tei.v1, as EngineRequest's protocol.
//
// Order of a request: Decode or, for RerankStream, several Add and then Decode, on a gRPC thread;
// TakeOutput when it is submitted; Encode or Refusal on a completion thread; headers after Encode.
//
// Ownership: `Decoded` owns the message's slices, and the request's texts point into them until the
// engine has copied them. The answer is built in an arena and serialised before the engine's result
// is freed.
//
// Bytes: decoding counts against DecodeBudget, through SliceView. Texts that RerankStream gathers
// count as their holder's in the engine (Engine::Reserve) until Decode, when admission counts them.
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
#include "server/codec/rerank_codec.h"
#include "server/codec/response.h"
#include "server/codec/slice_view.h"
#include "server/services/call.h"
#include "server/tei/messages.h"
#include "server/tei/models.h"
#include "server/tei/wire.h"

namespace castor::server::tei {

// The largest message that gRPC's servers take by default, and so the protocol's own servers.
inline constexpr size_t kMaxMessageBytes = 4 << 20;

// For one call, or one message of a stream.
template <typename Request, typename Response>
class Protocol {
 public:
  struct Decoded : Converted {
    SliceView slices;               // the request points into these
    std::list<std::string> copies;  // or, if it came in parts, into these
    Request message;
    RequestRegions regions;
    std::optional<std::chrono::milliseconds> timeout;
  };
  using Result = EncodeResult;

  // `named` is the model that the caller named, if any: see Models::Choose.
  Protocol(const Models& models, const std::string& named, const ServiceContext& services)
      : services_(services), models_(models), named_(named) {}

  absl::Status Decode(const grpc::ByteBuffer& bytes, TenantRegions, Decoded* decoded) {
    absl::Status status = Choose();
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
    constexpr bool kReranks = std::same_as<Request, wire::tei::RerankRequest>;
    constexpr bool kDecodes = std::same_as<Request, wire::tei::DecodeRequest>;
    constexpr TextFields kNames{.texts = kReranks   ? "texts"
                                         : kDecodes ? "ids"
                                                    : "inputs",
                                .query = kReranks ? "query" : ""};
    return RenameTextFields(error, kNames, /*late_interaction=*/false, submitted);
  }

  // The initial metadata of the answer.
  const Headers& headers() const { return headers_; }

 protected:
  const ModelInfo& model() const { return *choice_.model; }

  // The model, which answers this request even if another takes its name meanwhile.
  absl::Status Choose() {
    choice_ = models_.Choose(named_);
    return choice_.error;
  }

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
    decoded->request.generation = model().generation;
    return Convert(std::move(decoded->message), model(), decoded);
  }

  const ServiceContext& services_;

 private:
  const Models& models_;
  const std::string named_;
  Choice choice_;
  AnswerContext answer_context_;
  Headers headers_;
};

// RerankStream: a Rerank in parts. Each part has one text and its own query. Parts are kept in the
// order of their arrival, and the answer's indices count in that order.
class RerankStreamProtocol : public Protocol<wire::tei::RerankRequest, proto::RerankResponse> {
 public:
  using Protocol::Protocol;

  absl::Status Add(const grpc::ByteBuffer& part, const std::string& holder);
  absl::Status Decode(const grpc::ByteBuffer&, TenantRegions, Decoded* decoded);

 private:
  Decoded gathered_;
  int64_t bytes_ = 0;           // of the gathered texts, with an overhead for each
  std::shared_ptr<void> held_;  // their share of the holder's quota in the engine
};

}  // namespace castor::server::tei

// The wire format of one RPC of tei.v1, as EngineRequest's protocol.
#pragma once

#include <google/protobuf/arena.h>

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/codec/regions.h"
#include "server/codec/response.h"
#include "server/services/message.h"
#include "server/tei/messages.h"
#include "server/tei/models.h"

namespace castor::server::tei {

// What gRPC's servers take by default, and so the protocol's own.
inline constexpr size_t kMaxMessageBytes = 4 << 20;

// One call's, or one message's of a stream.
template <typename Request, typename Response>
class Protocol {
 public:
  struct Decoded {
    std::unique_ptr<Request> message = std::make_unique<Request>();
    EncodeRequest request;  // points into the message
    Asked asked;
    RequestRegions regions;
    std::optional<std::chrono::milliseconds> timeout;
  };
  using Result = EncodeResult;

  explicit Protocol(const Choice& choice) : choice_(choice) {}

  absl::Status Decode(const grpc::ByteBuffer& bytes, TenantRegions, Decoded* decoded) const {
    absl::Status status = choice_.error;
    if (status.ok()) status = ParseMessage(bytes, decoded->message.get(), kMaxMessageBytes);
    if (!status.ok()) return status;
    decoded->request.model = model().name;
    return Convert(*decoded->message, model(), &decoded->request, &decoded->asked);
  }

  static std::optional<KernelName> RequestedKernel(const Decoded&) { return std::nullopt; }

  std::optional<OutputRange> TakeOutput(Decoded& decoded) {
    asked_ = std::move(decoded.asked);
    return std::nullopt;
  }

  grpc::ByteBuffer Encode(std::string_view, EncodeResult result, const std::optional<OutputRange>&,
                          double total_us) {
    google::protobuf::Arena arena;
    auto* const message = google::protobuf::Arena::CreateMessage<Response>(&arena);
    Fill(result, asked_, model(), message);
    if constexpr (requires { message->mutable_metadata(); }) {
      Fill(result, asked_.characters, total_us, message->mutable_metadata());
      headers_ = HeadersOf(message->metadata());
    }
    return WithTensors(*message, {});
  }

  static absl::Status Refusal(const absl::Status& error, bool submitted) {
    return InOwnTerms(error, submitted, std::same_as<Request, proto::RerankRequest>);
  }

  // The initial metadata of the answer.
  const Headers& headers() const { return headers_; }

 protected:
  const ModelInfo& model() const { return choice_.model; }

  const Choice& choice_;

 private:
  Asked asked_;
  Headers headers_;
};

// What all calls of RerankStream hold while they wait for the rest of their texts.
struct Gathering {
  const int64_t max_texts;  // of one call
  const int64_t max_bytes;  // of all together
  mutable std::atomic<int64_t> bytes = 0;
};

// Its parts are one Rerank, but each text has its own query.
class RerankStreamProtocol : public Protocol<proto::RerankRequest, proto::RerankResponse> {
 public:
  RerankStreamProtocol(const Choice& choice, const Gathering& gathering)
      : Protocol(choice), gathering_(gathering) {}
  ~RerankStreamProtocol() { gathering_.bytes -= bytes_; }

  absl::Status Add(const grpc::ByteBuffer& part);
  absl::Status Decode(const grpc::ByteBuffer&, TenantRegions, Decoded* decoded);

 private:
  const Gathering& gathering_;
  int64_t bytes_ = 0;
  proto::RerankRequest gathered_;
  std::vector<std::string> queries_;
};

}  // namespace castor::server::tei

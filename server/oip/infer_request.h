// A ModelInfer request on its way through the engine: finds its model, then becomes an
// EngineRequest for attention or for an encoder. Counts its outcome in the model's statistics.
//
// Ownership: the call or stream owns the InferRequest, which owns both EngineRequests and the
// RequestedOutputs that they refer to. The message's bytes are released when Start returns; until
// then the engine has copied what it needs.
//
// Order: Start, on a gRPC thread; then exactly one of Deliver and Refuse, there or on a completion
// thread. Answers of a stream come in the order of their requests.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/oip/answer.h"
#include "server/services/engine_protocols.h"
#include "server/services/engine_request.h"

namespace castor::server::oip {

// EngineRequest's protocols. InferRequest decodes the message, since the message names the model.
// Answers are counted here; failures are counted in InferRequest::Refuse.
template <typename Base>
struct Protocol : Base {
  const RequestedOutputs& requested;
  Metrics* metrics;

  Protocol(const RequestedOutputs& outputs, Metrics* counters)
      : requested(outputs), metrics(counters) {}
  absl::StatusOr<grpc::ByteBuffer> Encode(std::string_view id, typename Base::Result result,
                                          const std::optional<OutputRange>&,
                                          double total_us) const {
    const ExecutionReport report = result.report;
    int64_t inferences = 1;
    if constexpr (requires { result.token_counts; }) inferences = std::ssize(result.token_counts);
    auto answer = Answer(requested, id, std::move(result), *metrics);
    if (answer.ok()) requested.model->counters->Answered(report, inferences, total_us);
    return answer;
  }
};

using AttendProtocol = Protocol<server::AttendProtocol>;

struct EncodeProtocol : Protocol<server::EncodeProtocol> {
  using Protocol::Protocol;
  absl::Status Refusal(const absl::Status& error, bool submitted) const {
    return RenameFields(error, submitted, requested);
  }
};

// Has EngineRequest's interface and threads.
class InferRequest : private RequestShell {
 public:
  InferRequest(const RequestParts& parts, RequestShell& shell, const Catalogue& catalogue)
      : parts_(parts),
        shell_(shell),
        catalogue_(catalogue),
        attend_(parts, *this, requested_, &parts.metrics),
        encode_(parts, *this, requested_, &parts.metrics) {}

  // Empties the message, as EngineRequest does.
  void Start(grpc::ByteBuffer* bytes, const RequestOrigin& origin);

  void Cancel() {
    attend_.Cancel();
    encode_.Cancel();
  }

  const std::string& request_id() const { return request_id_; }
  Subject subject() const {
    if (requested_.model == nullptr) return {};
    if (requested_.model->attention) return attend_.subject();
    return {encode_.subject().kernel, parts_.metrics.ModelOf(requested_.model->info.name)};
  }

 protected:
  const RequestedOutputs& requested() const { return requested_; }

 private:
  virtual grpc::ByteBuffer Wrap(grpc::ByteBuffer answer) const { return answer; }

  void Deliver(grpc::ByteBuffer answer) override { shell_.Deliver(Wrap(std::move(answer))); }
  void Refuse(const absl::Status& error) override;

  // An error refuses the request, which then has not been started.
  absl::Status DecodeAndStart(const grpc::ByteBuffer& bytes, const RequestOrigin& origin);

  const RequestParts parts_;
  RequestShell& shell_;
  const Catalogue& catalogue_;
  RequestedOutputs requested_;
  EngineRequest<AttendProtocol> attend_;
  EngineRequest<EncodeProtocol> encode_;
  std::string request_id_;
  TimePoint received_;
};

// A message of ModelStreamInfer. An error ends the stream.
class StreamedRequest : public InferRequest {
 public:
  using InferRequest::InferRequest;

 private:
  grpc::ByteBuffer Wrap(grpc::ByteBuffer answer) const final { return StreamAnswer(answer); }
};

// A message of ModelStreamInfer whose error is sent as its answer. Errors keep their place in the
// order of answers, since not all clients set ids.
class StreamedRequestWithErrors final : public StreamedRequest {
 public:
  using StreamedRequest::StreamedRequest;

  static constexpr bool kInOrder = true;

  grpc::ByteBuffer EncodeError(const google::rpc::Status& error) const {
    return StreamError(requested(), request_id(), error);
  }
};

}  // namespace castor::server::oip

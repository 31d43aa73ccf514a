#include "server/services/health_service.h"

#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "server/errors.h"
#include "server/services/message.h"
#include "server/transport/message_call.h"

namespace castor::server {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using grpc::health::v1::HealthListRequest;
using grpc::health::v1::HealthListResponse;

grpc::ByteBuffer Encode(HealthState::Status status) {
  HealthCheckResponse response;
  response.set_status(status);
  return SerializeMessage(response);
}

// The answer; nullopt: there is no such name.
std::optional<grpc::ByteBuffer> Answer(HealthState& state, const HealthCheckRequest& request) {
  const std::optional<HealthState::Status> status = state.StatusOf(request.service());
  if (!status.has_value()) return std::nullopt;
  return Encode(*status);
}

std::optional<grpc::ByteBuffer> Answer(HealthState& state, const HealthListRequest&) {
  HealthListResponse response;
  for (const auto& [name, status] : state.Statuses()) {
    (*response.mutable_statuses())[name].set_status(status);
  }
  return SerializeMessage(response);
}

// Check or List.
template <typename Request>
class HealthCall final : public MessageCall {
 public:
  HealthCall(HealthState& state, CallTable& calls, CallTable::Kind kind, IncomingCall incoming)
      : MessageCall(calls, kind, std::move(incoming)), state_(state) {}

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    Request request;
    if (absl::Status parsed = ParseMessage(*message, &request); !parsed.ok()) {
      return OnRefusal(parsed);
    }
    auto answer = Answer(state_, request);
    if (!answer.has_value()) {
      return SendError(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such name"));
    }
    Send(*std::move(answer), TimePoint::max());
  }
  void OnRefusal(const absl::Status& error) override { SendError(RefuseCall(error, {}, &call())); }
  void OnLost() override { SendError(grpc::Status::CANCELLED); }

  HealthState& state_;
};

// One Watch stream. gRPC calls OnDone, which deletes it, only after it took its last step.
class HealthWatchCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                              public HealthState::Watch {
 public:
  HealthWatchCall(HealthState& state, CallTable& calls, CallTable::Kind kind,
                  const IncomingCall& incoming)
      : state_(state), calls_(calls), call_(incoming.context) {
    absl::Status entered = calls_.Enter(row_, kind, call_);
    entered.Update(incoming.caller.status());
    handoff_.HandOver();
    if (entered.ok()) {
      StartRead(&message_);
    } else {
      Finish(OrOutOfMemory([&] { return RefuseCall(entered, {}, &call_); }));  // it never begins
    }
  }

  // The only message: what to watch.
  void OnReadDone(bool ok) override {
    handoff_.TakeOver();
    if (ok) calls_.Received(row_);
    const absl::Status begun = Guarded([&]() -> absl::Status {
      if (!ok) return MakeError(Reason::kMalformedMessage, "the call ended without a message");
      HealthCheckRequest request;
      absl::Status parsed = ParseMessage(message_, &request);
      message_.Clear();  // the stream may last for days
      if (parsed.ok()) state_.Begin(*this, request.service());
      return parsed;
    });
    if (begun.ok()) return;
    state_.Refuse(*this, OrOutOfMemory([&] { return RefuseCall(begun, {}, &call_); }));
  }

  void OnWriteDone(bool ok) override {
    handoff_.TakeOver();
    state_.Written(*this, ok);
  }

  void OnCancel() override {
    handoff_.TakeOver();
    calls_.Cancelled(row_);
    state_.Gone(*this);
    handoff_.HandOver();
  }

  void OnDone() override {
    handoff_.TakeOver();
    calls_.Leave(row_);
    delete this;
  }

 private:
  void Perform(Step step) noexcept override {
    if (step.write.has_value()) {
      buffer_ = Encode(*step.write);
      handoff_.HandOver();
      StartWrite(&buffer_);
    } else {
      handoff_.HandOver();
      Finish(*std::move(step.finish));
    }
  }

  HealthState& state_;
  CallTable& calls_;
  GrpcCall call_;
  CallTable::Row row_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer buffer_;  // of the write that is under way
  Handoff handoff_;
};

}  // namespace

HealthService::HealthService(HealthState& state, CallTable& calls, Kinds kinds,
                             const Authorizer& authorizer)
    : MessageService(authorizer) {
  const auto add = [&]<typename Request>(const char* path, Request) {
    AddMethod(path, [&state, &calls, kinds](IncomingCall incoming) {
      auto* call = new HealthCall<Request>(state, calls, kinds.check, std::move(incoming));
      call->Begin();
      return call;
    });
  };
  add("/grpc.health.v1.Health/Check", HealthCheckRequest());
  add("/grpc.health.v1.Health/List", HealthListRequest());
  AddMethod("/grpc.health.v1.Health/Watch", [&state, &calls, kinds](const IncomingCall& incoming) {
    return new HealthWatchCall(state, calls, kinds.watch, incoming);
  });
}

}  // namespace castor::server

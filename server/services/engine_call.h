// A unary call as the shell of an EngineRequest, for every method that computes.
//
//   gRPC thread          OnMessage: EngineRequest::Start
//   completion thread    Deliver or Refuse: counted, then sent
//
// The call may be answered while OnMessage is still running; gRPC keeps the call alive until
// OnMessage has returned.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "engine/base/guarded.h"
#include "server/services/call.h"
#include "server/services/engine_request.h"
#include "server/transport/message_call.h"

namespace castor::server {

// Request: EngineRequest, or another with its interface.
template <typename Request>
class EngineCall final : public MessageCall, private RequestShell {
 public:
  template <typename... Args>
  EngineCall(const ServiceContext& services, Method method, IncomingCall incoming,
             const Args&... args)
      : MessageCall(services.calls, CallTable::Kind::kWork, std::move(incoming)),
        record_(services, method, name(), TraceOf(services)),
        request_({services.engine, services.shared_memory, services.metrics, services.decoding},
                 *this, args...),
        load_reports_(services.load_reports) {}

 private:
  CallTrace TraceOf(const ServiceContext& services) const {
    if (services.tracer == nullptr) return {};
    return BeginTrace(*services.tracer, call(), name(), caller().ok());
  }

  void OnMessage(grpc::ByteBuffer* message) override {
    record_.Received(message->Length());
    if (!record_.accepted()) {
      message->Clear();
      return Refuse(CallRecord::Draining());
    }
    deadline_ = record_.DeadlineOf(call());
    request_.Start(message, {.received = record_.received(),
                             .deadline = deadline_,
                             .tenant = caller()->tenant,
                             .trace = record_.trace(),
                             .may_run_in_submit = true});
  }

  std::optional<absl::Status> OnPart(const grpc::ByteBuffer& part) override {
    if constexpr (requires { request_.Add(part, ""); }) {
      record_.Received(part.Length());
      return record_.accepted() ? request_.Add(part, Holder()) : CallRecord::Draining();
    }
    return std::nullopt;
  }

  // The tenant that held texts count for; a call without a tenant is counted by its host.
  std::string Holder() const {
    const std::string peer = call().peer();
    return caller()->tenant.empty() ? peer.substr(0, peer.rfind(':')) : caller()->tenant;
  }

  void OnRefusal(const absl::Status& error) override {
    Refuse(record_.accepted() ? error : CallRecord::Draining());
  }

  void OnLost() override { Refuse(CallRecord::CallerGone()); }

  void OnCallerGone() override {
    record_.Lost();
    request_.Cancel();
  }

  void Deliver(grpc::ByteBuffer answer) override {
    AddLoadReport();
    if constexpr (requires { request_.headers(); }) {
      for (const auto& [name, value] : request_.headers()) {
        context()->AddInitialMetadata(name, value);
      }
    }
    record_.Answered(answer.Length(), request_.subject(), request_.request_id());
    Send(std::move(answer), deadline_);
  }

  void Refuse(const absl::Status& error) override {
    AddLoadReport();
    SendError(record_.Refused(error, request_.subject(), request_.request_id(), &call()));
  }

  // To callers who were let in, if there is memory for it.
  void AddLoadReport() {
    if (load_reports_ == nullptr || !caller().ok()) return;
    Guarded([&] {
      call().AddTrailer(kLoadReportTrailer,
                        load_reports_->Trailer(std::chrono::steady_clock::now()));
    }).IgnoreError();
  }

  CallRecord record_;
  Request request_;
  LoadReports* const load_reports_;
  TimePoint deadline_;  // written before the request starts
};

// The factory of such calls, for MessageService::AddMethod. `args` outlive them.
template <typename Request, typename... Args>
auto EngineMethod(const ServiceContext& services, Method method, const Args&... args) {
  return [&services, method, &args...](IncomingCall incoming) {
    auto* call = new EngineCall<Request>(services, method, std::move(incoming), args...);
    call->Begin();
    return call;
  };
}

}  // namespace castor::server

// One call of a small method that answers at once, on gRPC's thread.
#pragma once

#include <utility>

#include "server/services/call.h"
#include "server/services/message.h"
#include "server/transport/message_call.h"

namespace castor::server {

// Parses the request, lets `handler` answer it, serialises the response. `handler` must not block:
//   absl::Status handler(const Caller&, const Request&, Response*)
template <typename Request, typename Response, typename Handler>
class TypedCall final : public MessageCall {
 public:
  TypedCall(const ServiceContext& services, IncomingCall incoming, Handler handler)
      : MessageCall(services.calls, CallTable::Kind::kWork, std::move(incoming)),
        handler_(std::move(handler)),
        record_(services, Method::kOther, name()) {}

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    record_.Received(message->Length());
    InArena<Request> request;
    InArena<Response> response;
    absl::Status status =
        record_.accepted() ? ParseMessage(*message, &*request) : CallRecord::Draining();
    if (status.ok()) status = handler_(*caller(), *request, &*response);
    if (!status.ok()) return Refuse(status);
    grpc::ByteBuffer answer = SerializeMessage(*response);
    record_.Answered(answer.Length(), {}, "");
    Send(std::move(answer), record_.DeadlineOf(call()));
  }

  void OnRefusal(const absl::Status& error) override {
    Refuse(record_.accepted() ? error : CallRecord::Draining());
  }

  void OnLost() override { Refuse(CallRecord::CallerGone()); }

  void OnCallerGone() override { record_.Lost(); }

  void Refuse(const absl::Status& error) { SendError(record_.Refused(error, {}, "", &call())); }

  Handler handler_;
  CallRecord record_;
};

// The factory of such calls of one method, for MessageService::AddMethod.
template <typename Request, typename Response, typename Handler>
auto TypedMethod(const ServiceContext& services, Handler handler) {
  return [&services, handler](IncomingCall incoming) {
    auto* call = new TypedCall<Request, Response, Handler>(services, std::move(incoming), handler);
    call->Begin();
    return call;
  };
}

}  // namespace castor::server

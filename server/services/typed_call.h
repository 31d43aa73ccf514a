// One call of a small method: one that answers at once, on gRPC's thread, or one that waits for the
// engine to load or unload a model.
#pragma once

#include <utility>

#include "engine/base/guarded.h"
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

// Parses the request and lets `order` start what it asks for; then lets `fill` make the response,
// on another thread:
//   void order(const Caller&, const Request&, ModelCompletion done)
//   absl::Status fill(const Request&, Response*)
template <typename Request, typename Response, typename Order, typename Fill>
class DeferredCall final : public MessageCall {
 public:
  DeferredCall(const ServiceContext& services, IncomingCall incoming, Order order, Fill fill)
      : MessageCall(services.calls, CallTable::Kind::kWork, std::move(incoming)),
        order_(std::move(order)),
        fill_(std::move(fill)),
        record_(services, Method::kOther, name()) {}

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    record_.Received(message->Length());
    deadline_ = record_.DeadlineOf(call());
    const absl::Status status =
        record_.accepted() ? ParseMessage(*message, &*request_) : CallRecord::Draining();
    if (!status.ok()) return Refuse(status);
    order_(*caller(), *request_, [this](const absl::Status& done) { Finish(done); });
  }

  void Finish(const absl::Status& done) {
    grpc::ByteBuffer answer;
    absl::Status status = done;
    if (status.ok()) {
      status = Guarded([&] {
        InArena<Response> response;
        absl::Status filled = fill_(*request_, &*response);
        if (filled.ok()) answer = SerializeMessage(*response);
        return filled;
      });
    }
    if (!status.ok()) return Refuse(status);
    record_.Answered(answer.Length(), {}, "");
    Send(std::move(answer), deadline_);
  }

  void OnRefusal(const absl::Status& error) override {
    Refuse(record_.accepted() ? error : CallRecord::Draining());
  }

  void OnLost() override { Refuse(CallRecord::CallerGone()); }

  void OnCallerGone() override { record_.Lost(); }

  void Refuse(const absl::Status& error) { SendError(record_.Refused(error, {}, "", &call())); }

  Order order_;
  Fill fill_;
  CallRecord record_;
  InArena<Request> request_;
  TimePoint deadline_;  // written before `order_`
};

template <typename Request, typename Response, typename Order, typename Fill>
auto DeferredMethod(const ServiceContext& services, Order order, Fill fill) {
  return [&services, order, fill](IncomingCall incoming) {
    auto* call = new DeferredCall<Request, Response, Order, Fill>(services, std::move(incoming),
                                                                  order, fill);
    call->Begin();
    return call;
  };
}

}  // namespace castor::server

// One call of a small method: one that answers at once, on gRPC's thread, or one that waits for the
// engine to load or unload a model.
#pragma once

#include <utility>

#include "engine/base/guarded.h"
#include "server/services/call.h"
#include "server/services/message.h"
#include "server/transport/message_call.h"

namespace castor::server {

// What both kinds share: how they are counted, refused and answered.
class SmallCall : public MessageCall {
 protected:
  SmallCall(const ServiceContext& services, IncomingCall incoming)
      : MessageCall(services.calls, CallTable::Kind::kWork, std::move(incoming)),
        record_(services, Method::kOther, name()) {}

  // Counts the message and parses it.
  template <typename Request>
  absl::Status Receive(const grpc::ByteBuffer& message, Request* request) {
    record_.Received(message.Length());
    deadline_ = record_.DeadlineOf(call());
    return record_.accepted() ? ParseMessage(message, request) : CallRecord::Draining();
  }

  // Sends what `fill`, which returns an absl::Status, makes of a new response.
  template <typename Response, typename Fill>
  void Answer(Fill fill) {
    InArena<Response> response;
    if (const absl::Status status = fill(&*response); !status.ok()) return Refuse(status);
    grpc::ByteBuffer answer = SerializeMessage(*response);
    record_.Answered(answer.Length(), {}, "");
    Send(std::move(answer), deadline_);
  }

  void Refuse(const absl::Status& error) { SendError(record_.Refused(error, {}, "", &call())); }

 private:
  void OnRefusal(const absl::Status& error) final {
    Refuse(record_.accepted() ? error : CallRecord::Draining());
  }
  void OnLost() final { Refuse(CallRecord::CallerGone()); }
  void OnCallerGone() final { record_.Lost(); }

  CallRecord record_;
  TimePoint deadline_;
};

// Parses the request, lets `handler` answer it, serialises the response. `handler` must not block:
//   absl::Status handler(const Caller&, const Request&, Response*)
template <typename Request, typename Response, typename Handler>
class TypedCall final : public SmallCall {
 public:
  TypedCall(const ServiceContext& services, IncomingCall incoming, Handler handler)
      : SmallCall(services, std::move(incoming)), handler_(std::move(handler)) {}

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    InArena<Request> request;
    if (const absl::Status s = Receive(*message, &*request); !s.ok()) return Refuse(s);
    Answer<Response>([&](Response* response) { return handler_(*caller(), *request, response); });
  }

  Handler handler_;
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
class DeferredCall final : public SmallCall {
 public:
  DeferredCall(const ServiceContext& services, IncomingCall incoming, Order order, Fill fill)
      : SmallCall(services, std::move(incoming)),
        order_(std::move(order)),
        fill_(std::move(fill)) {}

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    if (const absl::Status s = Receive(*message, &*request_); !s.ok()) return Refuse(s);
    order_(*caller(), *request_, [this](const absl::Status& done) { Finish(done); });
  }

  // Not on a thread of gRPC's, which answers a call whose reaction throws.
  void Finish(const absl::Status& done) {
    const absl::Status answered = Guarded([&] {
      if (!done.ok()) return Refuse(done);
      Answer<Response>([&](Response* response) { return fill_(*request_, response); });
    });
    if (!answered.ok()) Refuse(answered);
  }

  Order order_;
  Fill fill_;
  InArena<Request> request_;
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

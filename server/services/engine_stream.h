// A stream whose messages are requests to the engine, such as AttendStream: each is counted, logged
// and traced like a call. Its error goes into its answer, and the stream goes on. Where answers
// have no place for errors, and so for ids, they come in order, and the first error ends the
// stream. A Request with `kInOrder` has errors in its answers, and these come in order, too.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/base/guarded.h"
#include "server/services/engine_request.h"
#include "server/services/message_stream.h"

namespace castor::server {

// Request: EngineRequest, or another with its interface; Args: of its constructor.
template <typename Request, typename... Args>
class EngineStream final : public MessageStream {
 public:
  EngineStream(const ServiceContext& services, Method method, IncomingCall incoming,
               const Args&... args)
      : MessageStream(services, std::move(incoming), kOrdered,
                      services.engine.options().max_queued_requests / kShareOfBudgets),
        method_(method),
        accepted_(services.lifecycle.EnterCall()),
        queue_tenant_(QueueTenant(caller())),
        args_(args...) {}
  ~EngineStream() override { services().lifecycle.LeaveCall(); }

 private:
  static constexpr bool kHasErrors = requires(Request& request) { request.EncodeError({}); };
  static constexpr bool kOrdered = !kHasErrors || requires { Request::kInOrder; };

  class Item final : public Message, private RequestShell {
   public:
    explicit Item(EngineStream& stream, const Args&... args)
        : stream_(stream),
          record_(stream.services(), stream.method_, stream.name(), stream.TraceOfMessage()),
          request_({stream.services().engine, stream.services().shared_memory,
                    stream.services().metrics, stream.services().decoding},
                   *this, args...) {}

    // While the server drains, the engine refuses it, once it is decoded: the answer needs its id.
    void Start(grpc::ByteBuffer* bytes) override {
      record_.Received(bytes->Length());
      request_.Start(bytes, {record_.received(), record_.DeadlineOf(stream_.call()),
                             stream_.caller()->tenant, record_.trace(), stream_.queue_tenant_});
    }

    void Cancel() override {
      record_.Lost();
      request_.Cancel();
    }

   private:
    void Deliver(grpc::ByteBuffer answer) override {
      record_.Answered(answer.Length(), request_.subject(), request_.request_id());
      stream_.Answer(*this, std::move(answer));
    }

    void Refuse(const absl::Status& error) override {
      google::rpc::Status told =
          record_.RefusedMessage(error, request_.subject(), request_.request_id());
      if constexpr (kHasErrors) {
        grpc::ByteBuffer answer;
        const absl::Status encoded = Guarded([&] { answer = request_.EncodeError(told); });
        if (encoded.ok()) return stream_.Answer(*this, std::move(answer));
      }
      stream_.Fail(*this, told);
    }

    EngineStream& stream_;
    CallRecord record_;
    Request request_;
  };

  // A stream of no tenant waits like a tenant of its own. Else its many messages would stand in
  // front of the calls of everyone who names no tenant. No caller can send such a name.
  static std::string QueueTenant(const absl::StatusOr<Caller>& caller) {
    static std::atomic<uint64_t> streams = 0;
    if (!caller.ok() || !caller->tenant.empty()) return "";
    return "\n" + std::to_string(streams.fetch_add(1, std::memory_order_relaxed));
  }

  CallTrace TraceOfMessage() {
    if (services().tracer == nullptr) return {};
    return BeginTrace(*services().tracer, call(), name(), /*known=*/true);
  }

  std::shared_ptr<Message> NewMessage() override {
    return std::apply(
        [this](const Args&... args) { return std::make_shared<Item>(*this, args...); }, args_);
  }

  absl::Status Admit(const absl::Status& may) override {
    return accepted_ ? may : CallRecord::Draining();
  }

  // Counts like one message.
  grpc::Status Refusal(const absl::Status& error) override {
    return CallRecord(services(), method_, name()).Refused(error, {}, /*request_id=*/"", &call());
  }

  const Method method_;
  const bool accepted_;  // counted as a call in flight in any case
  const std::string queue_tenant_;
  // A string is of this stream alone; everything else outlives it.
  template <typename Arg>
  using Kept = std::conditional_t<std::is_same_v<Arg, std::string>, std::string, const Arg&>;
  const std::tuple<Kept<Args>...> args_;
};

// The factory of such streams, for MessageService::AddMethod. `args` outlive them, but for strings,
// which outlive the factory.
template <typename Request, typename... Args>
auto EngineStreamMethod(const ServiceContext& services, Method method, const Args&... args) {
  return [&services, method, &args...](IncomingCall incoming) {
    const auto stream = std::make_shared<EngineStream<Request, Args...>>(
        services, method, std::move(incoming), args...);
    stream->Begin();
    return stream.get();
  };
}

}  // namespace castor::server

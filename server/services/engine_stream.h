// AttendStream and EncodeStream: each message is the request of an EngineRequest, counted, logged
// and traced like a call. Its error goes into its answer, and the stream goes on.
#pragma once

#include <memory>
#include <utility>

#include "server/services/engine_request.h"
#include "server/services/message_stream.h"

namespace castor::server {

template <typename Protocol>
class EngineStream final : public MessageStream {
 public:
  using MessageStream::MessageStream;

 private:
  class Request final : public Message, private RequestShell {
   public:
    explicit Request(EngineStream& stream)
        : stream_(stream),
          record_(stream.services(), stream.method(), stream.TraceOfMessage()),
          request_({stream.services().engine, stream.services().shared_memory,
                    stream.services().metrics},
                   *this) {}

    // While the server drains, the engine refuses it, once it is decoded: the answer needs its id.
    void Start(grpc::ByteBuffer* bytes) override {
      record_.Received(*bytes);
      request_.Start(bytes, {record_.received(), record_.DeadlineOf(*stream_.context()),
                             stream_.caller()->tenant, record_.trace()});
    }

    void Cancel() override {
      record_.Lost();
      request_.Cancel();
    }

   private:
    void Deliver(grpc::ByteBuffer answer) override {
      record_.Answered(answer, request_.kernel(), request_.request_id());
      stream_.Answer(*this, std::move(answer));
    }

    void Refuse(const absl::Status& error) override {
      stream_.Answer(*this,
                     EncodeError<typename Protocol::Response>(
                         request_.request_id(),
                         record_.RefusedMessage(error, request_.kernel(), request_.request_id())));
    }

    EngineStream& stream_;
    CallRecord record_;
    EngineRequest<Protocol> request_;
  };

  CallTrace TraceOfMessage() const {
    if (services().tracer == nullptr) return {};
    return BeginTrace(*services().tracer, *context(), method(), /*known=*/true);
  }

  std::shared_ptr<Message> NewMessage() override { return std::make_shared<Request>(*this); }
};

// The factory of such streams, for MessageService::AddMethod.
template <typename Protocol>
auto EngineStreamMethod(const ServiceContext& services, Method method) {
  return [&services, method](Arrival arrival) {
    const auto stream =
        std::make_shared<EngineStream<Protocol>>(services, method, std::move(arrival));
    stream->Begin();
    return stream.get();
  };
}

}  // namespace castor::server

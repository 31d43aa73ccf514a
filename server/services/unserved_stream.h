// A bidirectional method of the contract that this server does not serve yet.
#pragma once

#include "engine/base/error.h"
#include "server/services/call.h"
#include "server/transport/message_call.h"

namespace castor::server {

// Answers UNIMPLEMENTED, NOT_SERVED without reading anything.
class UnservedStream final : public MessageCall {
 public:
  UnservedStream(const ServiceContext& services, Method method,
                 grpc::CallbackServerContext* context)
      : MessageCall(services.calls, CallTable::Kind::kWork, context), record_(services, method) {
    const absl::Status error = record_.accepted()
                                   ? MakeError(Reason::kNotServed, "not served by this server yet")
                                   : CallRecord::Draining();
    SendError(record_.Refused(error, std::nullopt, "", context));
  }

 private:
  void OnMessage(grpc::ByteBuffer*) override {}  // none is read
  void OnRefusal(const absl::Status&) override {}
  void OnLost() override {}

  CallRecord record_;
};

// What makes such calls of one method, for MessageService::AddMethod.
inline auto UnservedMethod(const ServiceContext& services, Method method) {
  return [&services, method](grpc::CallbackServerContext* context) {
    return new UnservedStream(services, method, context);
  };
}

}  // namespace castor::server

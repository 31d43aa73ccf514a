// A bidirectional method of the contract that this server does not serve yet.
#pragma once

#include <utility>

#include "engine/base/error.h"
#include "server/services/call.h"
#include "server/transport/message_call.h"

namespace castor::server {

// Answers UNIMPLEMENTED, NOT_SERVED without reading anything.
class UnservedStream final : public MessageCall {
 public:
  UnservedStream(const ServiceContext& services, Method method, Arrival arrival)
      : MessageCall(services.calls, CallTable::Kind::kWork, std::move(arrival)),
        record_(services, method) {
    SendError(record_.Refused(Error(), std::nullopt, "", context()));
  }

 private:
  absl::Status Error() const {
    if (!record_.accepted()) return CallRecord::Draining();
    if (!caller().ok()) return caller().status();
    return MakeError(Reason::kNotServed, "not served by this server yet");
  }

  void OnMessage(grpc::ByteBuffer*) override {}  // none is read
  void OnRefusal(const absl::Status&) override {}
  void OnLost() override {}

  CallRecord record_;
};

// The factory of such calls of one method, for MessageService::AddMethod.
inline auto UnservedMethod(const ServiceContext& services, Method method) {
  return [&services, method](Arrival arrival) {
    return new UnservedStream(services, method, std::move(arrival));
  };
}

}  // namespace castor::server

#include "server/transport/message_call.h"

#include "engine/base/error.h"

namespace castor::server {

MessageCall::MessageCall(CallTable& table, CallTable::Kind kind, Arrival arrival)
    : table_(table),
      context_(arrival.context),
      name_(arrival.name),
      caller_(std::move(arrival.caller)),
      entered_(table.Enter(row_, kind, context_)) {}

void MessageCall::Begin() {
  if (!entered_.ok()) return OnRefusal(entered_);
  if (!caller_.ok()) return OnRefusal(caller_.status());
  HandOver();
  StartRead(&message_);
}

void MessageCall::OnReadDone(bool ok) {
  handoff_.TakeOver();
  const std::optional<absl::Status> part = ok ? OnPart(message_) : std::nullopt;
  if (part.has_value() && part->ok()) {
    in_parts_ = true;
    message_.Clear();
    HandOver();
    return StartRead(&message_);
  }
  if (part.has_value()) {
    OnRefusal(*part);
  } else if (ok || (in_parts_ && !context_->IsCancelled())) {
    table_.Received(row_);
    OnMessage(&message_);
  } else if (context_->IsCancelled()) {
    OnLost();
  } else {
    OnRefusal(MakeError(Reason::kMalformedMessage, "the call ended without a message"));
  }
  HandOver();
}

void MessageCall::Send(grpc::ByteBuffer answer, TimePoint deadline) {
  answer_ = std::move(answer);
  table_.Answering(row_, deadline);
  HandOver();
  StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
}

void MessageCall::SendError(const grpc::Status& status) {
  table_.Answering(row_, TimePoint::max());
  HandOver();
  Finish(status);
}

void MessageCall::OnCancel() {
  handoff_.TakeOver();
  table_.Cancelled(row_);
  OnCallerGone();
  HandOver();
}

void MessageCall::OnDone() {
  handoff_.TakeOver();
  table_.Leave(row_);
  delete this;
}

}  // namespace castor::server

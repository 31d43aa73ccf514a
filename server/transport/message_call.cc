#include "server/transport/message_call.h"

#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "server/errors.h"
#include "server/services/call.h"

namespace castor::server {

MessageCall::MessageCall(CallTable& table, CallTable::Kind kind, IncomingCall incoming)
    : table_(table),
      context_(incoming.context),
      call_(incoming.context),
      name_(incoming.name),
      caller_(std::move(incoming.caller)),
      entered_(table.Enter(row_, kind, call_,
                           kind == CallTable::Kind::kWork
                               ? [this](const auto& why) { return End(why); }
                               : CallTable::EndCall())) {}

// Not after a reaction that has answered: the call may be gone.
template <typename Reaction>
void MessageCall::React(Reaction reaction) noexcept {
  const absl::Status thrown = Guarded(reaction);
  if (thrown.ok() || Guarded([&] { OnRefusal(thrown); }).ok()) return;
  SendError(OutOfMemory());
}

void MessageCall::Begin() noexcept {
  absl::Status may = entered_;
  may.Update(caller_.status());
  React([&] { may.ok() ? Read() : OnRefusal(may); });
}

void MessageCall::Read() {
  HandOver();
  if (!Pass(Turn::kOurs, Turn::kRead)) return OnRefusal(CallRecord::Draining());
  StartRead(&message_);
}

void MessageCall::OnReadDone(bool ok) {
  if (!Pass(Turn::kRead, Turn::kOurs)) return;
  handoff_.TakeOver();
  React([&] {
    const std::optional<absl::Status> part = ok ? OnPart(message_) : std::nullopt;
    if (part.has_value() && part->ok()) {
      in_parts_ = true;
      message_.Clear();
      Read();
    } else if (part.has_value()) {
      OnRefusal(*part);
    } else if (ok || (in_parts_ && !context_->IsCancelled())) {
      table_.Received(row_);
      OnMessage(&message_);
    } else if (context_->IsCancelled()) {
      OnLost();
    } else {
      OnRefusal(MakeError(Reason::kMalformedMessage, "the call ended without a message"));
    }
  });
  HandOver();
}

bool MessageCall::End(const absl::Status& why) {
  if (turn_.exchange(Turn::kEnded) != Turn::kRead) return false;
  handoff_.TakeOver();
  React([&] { OnRefusal(why); });
  return true;
}

void MessageCall::Send(grpc::ByteBuffer answer, TimePoint deadline) noexcept {
  answer_ = std::move(answer);
  table_.Answering(row_, deadline);
  HandOver();
  StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
}

void MessageCall::SendError(grpc::Status status) noexcept {
  table_.Answering(row_, TimePoint::max());
  HandOver();
  Finish(std::move(status));
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

// An exception before there is a reactor is answered by a reactor in gRPC's own memory, as gRPC
// itself would do.
MessageService::Reactor* MessageService::Make(const std::function<Reactor*(IncomingCall)>& make,
                                              const char* path,
                                              grpc::CallbackServerContext* call) noexcept {
  Reactor* reactor = nullptr;
  GrpcCall seen(call);
  const absl::Status thrown = Guarded([&] {
    reactor = make({call, authorizer_.Authorize(seen, path), path + 1});
  });
  if (thrown.ok()) return reactor;
  using Refusal = grpc::internal::UnimplementedBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  void* const memory = grpc_call_arena_alloc(call->c_call(), sizeof(Refusal));
  return new (memory) Refusal(OrOutOfMemory([&] { return RefuseCall(thrown, {}, &seen); }));
}

}  // namespace castor::server

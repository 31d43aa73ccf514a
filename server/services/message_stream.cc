#include "server/services/message_stream.h"

#include <grpcpp/support/error_details.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/guarded.h"
#include "engine/engine.h"
#include "server/errors.h"

namespace castor::server {

MessageStream::MessageStream(const ServiceContext& services, IncomingCall incoming, bool ordered,
                             int64_t max_messages)
    : services_(services),
      name_(incoming.name),
      context_(incoming.context),
      call_(incoming.context),
      caller_(std::move(incoming.caller)),
      ordered_(ordered),
      max_messages_(static_cast<size_t>(std::max<int64_t>(max_messages, 1))),
      max_bytes_(services.engine.options().max_queued_bytes / kShareOfBudgets),
      entered_(services.calls.Enter(row_, CallTable::Kind::kWork, call_,
                                    [this](const auto& why) { return EndIdle(why); })) {}

void MessageStream::Begin() {
  services_.streams.Add(shared_from_this());
  const absl::Status may = Guarded([&] {
    absl::Status status = entered_;
    status.Update(caller_.status());
    return Admit(status);
  });
  Step step;
  {
    MutexLock lock(mu_);
    if (!may.ok() && !finished_) step.finish = finished_ = true;
  }
  if (!step.finish) return ReadNext();
  step.status = Refusal(may);
  Perform(std::move(step));
}

void MessageStream::Drain() {
  Step step;
  {
    MutexLock lock(mu_);
    ending_ = true;
    step = NextStep();
  }
  Perform(std::move(step));
}

// Nothing is in flight, and the caller has sent nothing for too long, or the server stops.
bool MessageStream::EndIdle(const absl::Status& why) {
  Step step;
  {
    MutexLock lock(mu_);
    if (reading_ != Reading::kGrpcs || writing_.has_value() || !computing_.empty() || finished_) {
      return false;
    }
    failure_ = Refusal(why);
    step = NextStep();
  }
  Perform(std::move(step));
  return true;
}

void MessageStream::OnReadDone(bool ok) {
  std::shared_ptr<Message> message;
  Step step;
  bool cancelled = false;
  {
    MutexLock lock(mu_);
    reading_ = Reading::kOurs;
    if (finished_) return;
    cancelled = cancelled_ || failure_.has_value();
    absl::Status made;
    if (ok) {
      made = Guarded([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { message = AddMessage(); });
    } else {
      (context_->IsCancelled() ? cancelled_ : half_closed_) = true;
    }
    if (message == nullptr) reading_ = Reading::kStopped;
    if (!made.ok() && !failure_.has_value()) failure_ = Refusal(made);
    step = NextStep();
    if (!made.ok()) step.cancelled = Computing();
  }
  Perform(std::move(step));
  if (message == nullptr) return;
  if (cancelled) message->Cancel();
  const absl::Status started = Guarded([&] { message->Start(&message_); });
  if (!started.ok()) {
    message_.Clear();
    message->Refuse(started);
  }
  ReadNext();
}

std::shared_ptr<MessageStream::Message> MessageStream::AddMessage() {
  std::shared_ptr<Message> message = NewMessage();
  Computed computed{message, std::list<Outgoing>(1)};
  if (ordered_) message->place_ = &answers_.emplace_back();
  computing_.emplace(message.get(), std::move(computed));
  message->bytes_ = static_cast<int64_t>(message_.Length());
  bytes_ += message->bytes_;
  return message;
}

void MessageStream::OnWriteDone(bool ok) {
  Outgoing written;
  Step step;
  bool room = false;
  {
    MutexLock lock(mu_);
    written = *std::exchange(writing_, std::nullopt);
    bytes_ -= written.message->bytes_;
    room = reading_ == Reading::kNoRoom && HasRoom();
    if (room) reading_ = Reading::kOurs;
    step = NextStep();
  }
  if (ok) {
    services_.calls.Answered(row_);
  } else {
    written.message->Cancel();
  }
  written.message.reset();
  Perform(std::move(step));
  if (room) ReadNext();
}

void MessageStream::OnCancel() {
  Step step;
  {
    MutexLock lock(mu_);
    cancelled_ = true;
    step = NextStep();
    step.cancelled = Computing();
  }
  services_.calls.Cancelled(row_);
  Perform(std::move(step));
}

void MessageStream::OnDone() {
  { MutexLock lock(mu_); }
  services_.calls.Leave(row_);
  services_.streams.Remove(this);
}

void MessageStream::Answer(const Message& message, grpc::ByteBuffer bytes) noexcept {
  Answer(message, Outgoing{.message = nullptr, .bytes = std::move(bytes)});
}

void MessageStream::Fail(const Message& message, const google::rpc::Status& error) noexcept {
  Outgoing failure;
  failure.failure = OrOutOfMemory([&] {
    grpc::Status status;
    grpc::SetErrorDetails(error, &status);
    return status;
  });
  Answer(message, std::move(failure));
}

void MessageStream::Answer(const Message& message, Outgoing answer) noexcept {
  Step step;
  {
    MutexLock lock(mu_);
    Computed computed = std::move(computing_.extract(&message).mapped());
    answer.message = std::move(computed.message);
    const auto size = static_cast<int64_t>(answer.bytes.Length());
    bytes_ += size - std::exchange(answer.message->bytes_, size);
    // Once the stream has failed, or its caller is gone, there are no places any more.
    const bool placed = ordered_ && !cancelled_ && !failure_.has_value();
    Outgoing& place = placed ? *answer.message->place_ : computed.place.front();
    place = std::move(answer);
    if (!placed) answers_.splice(answers_.end(), computed.place);
    step = NextStep();
  }
  Perform(std::move(step));
}

std::vector<std::shared_ptr<MessageStream::Message>> MessageStream::Computing() const noexcept {
  std::vector<std::shared_ptr<Message>> messages;
  Guarded([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    messages.reserve(computing_.size());
    for (const auto& [key, computed] : computing_) messages.push_back(computed.message);
  }).IgnoreError();
  return messages;
}

bool MessageStream::HasRoom() const {
  const size_t unplaced = ordered_ ? 0 : computing_.size();
  const size_t messages = unplaced + answers_.size() + (writing_.has_value() ? 1 : 0);
  return messages < max_messages_ && bytes_ < max_bytes_;
}

// Reads the next message if there is room, in a reaction whose turn it is.
void MessageStream::ReadNext() {
  {
    MutexLock lock(mu_);
    if (cancelled_ || ending_ || failure_.has_value() || finished_) {
      reading_ = Reading::kStopped;
      return;
    }
    reading_ = HasRoom() ? Reading::kGrpcs : Reading::kNoRoom;
    if (reading_ == Reading::kNoRoom) return;
  }
  StartRead(&message_);
}

MessageStream::Step MessageStream::NextStep() noexcept {
  Step step;
  if (finished_) return step;  // it may have left the table, which must not hear of it again
  if (!failure_.has_value() && !writing_.has_value() && !answers_.empty() &&
      answers_.front().failure.has_value()) {
    failure_ = std::move(answers_.front().failure);
    step.cancelled = Computing();
  }
  if (cancelled_ || failure_.has_value()) step.dropped.swap(answers_);
  TimePoint limit = TimePoint::max();
  if (writing_.has_value()) {
    limit = limit_;
  } else if (!answers_.empty() && answers_.front().message != nullptr) {
    writing_ = std::move(answers_.front());
    answers_.pop_front();
    step.write = &writing_->bytes;
    limit = services_.calls.TransferEnd();
  } else if (computing_.empty()) {
    limit = services_.calls.TransferEnd();
    if (failure_.has_value() || cancelled_ || half_closed_ || ending_) {
      finished_ = step.finish = true;
      step.status = OrOutOfMemory([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return failure_.has_value() ? *std::move(failure_)
               : half_closed_       ? grpc::Status::OK
               : cancelled_         ? grpc::Status::CANCELLED
                                    : RefuseCall(CallRecord::Draining(), {}, &call_);
      });
    }
  }
  if (limit != limit_) services_.calls.Limit(row_, limit_ = limit);
  return step;
}

void MessageStream::Perform(Step step) {
  for (const Outgoing& answer : step.dropped) {
    if (answer.message != nullptr) answer.message->Cancel();
  }
  for (const auto& message : step.cancelled) message->Cancel();
  step.dropped.clear();
  if (step.write == nullptr && !step.finish) return;
  if (step.finish) return Finish(std::move(step.status));
  StartWrite(step.write);
}

void OpenStreams::Add(std::shared_ptr<MessageStream> stream) {
  MessageStream* const added = stream.get();
  bool ended = false;
  {
    MutexLock lock(mu_);
    ended = ended_;
    streams_.emplace(added, std::move(stream));
  }
  if (ended) added->Drain();
}

void OpenStreams::Remove(MessageStream* stream) {
  std::shared_ptr<MessageStream> removed;
  MutexLock lock(mu_);
  removed = std::move(streams_.extract(stream).mapped());
}

void OpenStreams::End() {
  std::vector<std::shared_ptr<MessageStream>> streams;
  {
    MutexLock lock(mu_);
    ended_ = true;
    for (const auto& [key, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->Drain();
}

}  // namespace castor::server

#include "client/stream.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "client/client.h"

namespace castor::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

enum Event : intptr_t { kStarted = 1, kRead, kWritten, kFinished };

void* Tag(Event event) { return reinterpret_cast<void*>(event); }

// Time beyond the deadline for the server to report that it has passed.
constexpr milliseconds kGrace{1000};

// Whether a request may be sent again when the client cannot tell if the server has received it.
bool MayRepeat(const v1::AttendRequest& request) { return !request.has_output(); }
bool MayRepeat(const v1::EncodeRequest&) { return true; }

}  // namespace

template <typename Request, typename Response>
Stream<Request, Response>::Stream(Client& client, Start start, Source source, StreamOptions options)
    : client_(client), start_(std::move(start)), source_(std::move(source)), options_(options) {}

template <typename Request, typename Response>
Stream<Request, Response>::~Stream() {
  if (call_ != nullptr) {
    call_->context.TryCancel();
    while (call_->events > 0) HandleEvent(Time::max());
  }
  queue_.Shutdown();
  void* tag;
  for (bool ok; queue_.Next(&tag, &ok);) {
  }
}

template <typename Request, typename Response>
std::optional<Result<Response>> Stream<Request, Response>::Next() {
  const Time deadline = steady_clock::now() + options_.deadline;
  while (true) {
    FillWindow();
    if (slots_.empty()) {
      if (call_ == nullptr) return std::nullopt;
    } else if (slots_.front().state == State::kAnswered) {
      Result<Response> answer = *std::move(slots_.front().answer);
      slots_.pop_front();
      ++first_;
      FillWindow();
      if (call_ != nullptr) WriteNext();  // travels while the caller handles the answer
      return answer;
    } else if (call_ == nullptr) {
      if (const auto error = StartCall()) FailAll(*error);
      continue;
    }
    WriteNext();
    HandleEvent(deadline + kGrace);
    if (call_->events == 0) EndCall(deadline);
  }
}

template <typename Request, typename Response>
void Stream<Request, Response>::FillWindow() {
  while (!exhausted_ && slots_.size() < std::max<size_t>(options_.window, 1)) {
    Slot slot;
    if (!source_(&slot.request)) {
      exhausted_ = true;
      return;
    }
    slot.request.set_request_id(std::to_string(first_ + slots_.size()));
    if (slot.request.timeout_ms() == 0) {
      slot.request.set_timeout_ms(
          static_cast<int32_t>(std::min<int64_t>(options_.deadline.count(), INT32_MAX)));
    }
    if (const auto too_long = CheckSize(slot.request)) {
      slot.answer = *too_long;
      slot.state = State::kAnswered;
    }
    slots_.push_back(std::move(slot));
  }
}

template <typename Request, typename Response>
std::optional<Error> Stream<Request, Response>::StartCall() {
  auto call = std::make_unique<Call>();
  ++attempts_;
  if (const absl::Status may = client_.Authorize(call->context); !may.ok()) return LocalError(may);
  timed_out_ = false;
  call_ = std::move(call);
  call_->stream = start_(&call_->context, &queue_);
  call_->events = 1;
  call_->stream->StartCall(Tag(kStarted));
  return std::nullopt;
}

template <typename Request, typename Response>
void Stream<Request, Response>::WriteNext() {
  Call& call = *call_;
  if (!call.started || call.writing || call.finishing || call.done_sending) return;
  const auto slot = std::find_if(slots_.begin(), slots_.end(), [](const Slot& candidate) {
    return candidate.state == State::kUnsent;
  });
  if (slot == slots_.end() && !slots_.empty()) return;
  call.writing = true;
  ++call.events;
  if (slots_.empty()) {  // the source is exhausted too: let the server end the call
    call.done_sending = true;
    return call.stream->WritesDone(Tag(kWritten));
  }
  slot->alone = !InFlight();
  slot->state = State::kSent;
  call.stream->Write(slot->request, Tag(kWritten));
}

template <typename Request, typename Response>
void Stream<Request, Response>::HandleEvent(Time until) {
  void* tag = nullptr;
  bool ok = false;
  const auto wall = until == Time::max()
                        ? std::chrono::system_clock::time_point::max()
                        : std::chrono::system_clock::now() + (until - steady_clock::now());
  if (queue_.AsyncNext(&tag, &ok, wall) != grpc::CompletionQueue::GOT_EVENT) {
    timed_out_ = true;
    call_->context.TryCancel();
    queue_.Next(&tag, &ok);
  }
  Call& call = *call_;
  --call.events;
  switch (static_cast<Event>(reinterpret_cast<intptr_t>(tag))) {
    case kStarted:
      call.started = ok;
      break;
    case kRead:
      if (ok) HandleResponse(std::move(call.response));
      break;
    case kWritten:
      call.writing = false;
      // Only a failed read shows that the call is over.
      ok = true;
      break;
    case kFinished:
      return;
  }
  if (!ok) return RequestStatus();
  if (reinterpret_cast<intptr_t>(tag) == kWritten || call.finishing) return;
  ++call.events;
  call.stream->Read(&call.response, Tag(kRead));
}

template <typename Request, typename Response>
void Stream<Request, Response>::RequestStatus() {
  if (std::exchange(call_->finishing, true)) return;
  ++call_->events;
  call_->stream->Finish(&call_->status, Tag(kFinished));
}

template <typename Request, typename Response>
void Stream<Request, Response>::HandleResponse(Response response) {
  const std::string& id = response.request_id();
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  const uint64_t place = number - first_;
  // The peer may not be a castor-server.
  if (error != std::errc() || place >= slots_.size() || slots_[place].state != State::kSent) return;
  Slot& slot = slots_[place];
  slot.state = State::kRefused;
  if (response.has_error()) {
    Error refusal = ParseError(response.error());
    if (refusal.code == grpc::StatusCode::UNAVAILABLE) {
      call_->done_sending = true;  // the server answers the others before it ends the call
      return;
    }
    if (refusal.retry_after && InFlight()) return;
    if (refusal.retry_after && !slot.alone && !call_->done_sending) {
      slot.state = State::kUnsent;  // the stream's own requests took the room, and are answered
      return;
    }
    slot.answer = std::move(refusal);
  } else {
    slot.answer = std::move(response);
  }
  slot.state = State::kAnswered;
  attempts_ = 0;
  for (Slot& other : slots_) {
    if (other.state == State::kRefused && !call_->done_sending) other.state = State::kUnsent;
  }
}

template <typename Request, typename Response>
bool Stream<Request, Response>::InFlight() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.state == State::kSent; });
}

template <typename Request, typename Response>
void Stream<Request, Response>::EndCall(Time deadline) {
  const std::unique_ptr<Call> call = std::move(call_);
  if (slots_.empty()) return;
  Error error = ParseError(call->status);
  error.attempts = std::max(attempts_, 1);
  if (timed_out_) {
    error.code = grpc::StatusCode::DEADLINE_EXCEEDED;
    error.message = "no answer came in time";
  } else if (call->status.ok()) {
    error.code = grpc::StatusCode::INTERNAL;
    error.message = "the server ended the stream without an answer to each request";
  }
  const auto delay = client_.DelayBefore(error, &call->context, deadline);
  if (!delay) return FailAll(error);
  for (Slot& slot : slots_) {
    if (slot.state == State::kAnswered) continue;
    if (slot.state == State::kSent && error.reason != "DRAINING" && !MayRepeat(slot.request)) {
      slot.state = State::kAnswered;
      slot.answer = error;
    } else {
      slot.state = State::kUnsent;
    }
  }
  client_.Wait(*delay);
}

template <typename Request, typename Response>
void Stream<Request, Response>::FailAll(const Error& error) {
  for (Slot& slot : slots_) {
    if (slot.state == State::kAnswered) continue;
    slot.state = State::kAnswered;
    slot.answer = error;
  }
  attempts_ = 0;
}

template class Stream<v1::AttendRequest, v1::AttendResponse>;
template class Stream<v1::EncodeRequest, v1::EncodeResponse>;

}  // namespace castor::client

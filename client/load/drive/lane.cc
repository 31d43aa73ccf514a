#include "client/load/drive/lane.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>

#include "client/load/base/thread_time.h"

namespace castor::load {
namespace {

constexpr int kBurst = 32;         // requests that are sent before answers are looked at
constexpr size_t kMaxSpare = 256;  // calls
// A caller whose request could not be sent tries again after this, not at once and for ever.
constexpr std::chrono::milliseconds kRefusedPause{10};

}  // namespace

Lane::Lane(const Traffic& traffic, Recorder& recorder, InFlight& in_flight)
    : traffic_(traffic),
      recorder_(recorder),
      in_flight_(in_flight),
      examiner_(traffic, recorder),
      links_(traffic.endpoints, traffic.connections, {.tls = traffic.tls}) {
  MakeMetadata();
}

void Lane::MakeMetadata() {
  // The version first: a token that changes meanwhile is seen the next time.
  if (traffic_.token != nullptr) token_version_ = traffic_.token->version();
  const std::string common = traffic_.token != nullptr ? traffic_.token->header() : "";
  std::vector<Metadata>& classes = metadata_.emplace_back();
  for (const ClassSpec& spec : traffic_.workload->classes) {
    Metadata& metadata = classes.emplace_back();
    if (!spec.tenant.empty()) metadata.emplace_back("castor-tenant", spec.tenant);
    const std::string header = spec.token.empty() ? common : "Bearer " + spec.token;
    if (!header.empty()) metadata.emplace_back("authorization", header);
  }
}

Lane::~Lane() {
  Stop();
  Await();
}

void Lane::StartOpen(const Schedule& schedule, size_t first, size_t stride, int64_t max_in_flight,
                     Clock::time_point begin) {
  schedule_ = &schedule;
  at_ = first;
  stride_ = stride;
  max_in_flight_ = max_in_flight;
  Start(begin);
}

void Lane::StartClosed(std::function<Planned()> next, int64_t callers,
                       std::chrono::nanoseconds think_time, Clock::time_point begin,
                       Clock::time_point from, Clock::time_point end) {
  next_ = std::move(next);
  think_time_ = think_time;
  end_ = end;
  for (int64_t i = 0; i < callers; ++i) callers_.push(from);
  Start(begin);
}

void Lane::Start(Clock::time_point begin) {
  begin_ = begin;
  examiner_.Start(begin);
  thread_ = std::thread([this] { Run(); });
}

void Lane::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  links_.Wake();
}

void Lane::Await() {
  if (thread_.joinable()) thread_.join();
  examiner_.Finish();
}

std::chrono::nanoseconds Lane::BusiestThread() const {
  return std::max(thread_time_, examiner_.thread_time());
}

void Lane::Run() {
  pthread_setname_np(pthread_self(), "lane");
  prctl(PR_SET_TIMERSLACK, 1);  // wake when it is time, not when it suits the kernel
  while (true) {
    if (stop_.load(std::memory_order_relaxed)) EndAll();
    EndOverdue();
    SendDue();
    TakeEnded();
    links_.Flush();
    if (IsOver()) break;
    links_.Wait(NextMoment());
  }
  thread_time_ = std::max(ThisThreadsTime() - links_.watched(), std::chrono::nanoseconds(0));
}

bool Lane::IsOver() const {
  if (!calls_.empty() || !links_.ended().empty()) return false;
  return schedule_ != nullptr ? at_ >= schedule_->size() : callers_.empty();
}

std::optional<Clock::time_point> Lane::NextMoment() const {
  std::optional<Clock::time_point> next;
  if (!calls_.empty()) next = calls_.begin()->first;
  std::optional<Clock::time_point> due;
  if (schedule_ == nullptr && !callers_.empty()) due = callers_.top();
  if (schedule_ != nullptr && at_ < schedule_->size()) {
    due = begin_ + std::chrono::nanoseconds((*schedule_)[at_].at_ns);
  }
  if (!next.has_value()) return due;
  return due.has_value() ? std::min(*next, *due) : next;
}

void Lane::SendDue() {
  auto now = Clock::now();
  for (int i = 0; i < kBurst; ++i) {
    if (schedule_ != nullptr) {
      if (at_ >= schedule_->size()) return;
      const Planned& planned = (*schedule_)[at_];
      const auto due = begin_ + std::chrono::nanoseconds(planned.at_ns);
      if (due > now) return;
      at_ += stride_;
      Send(planned, due);
    } else {
      if (callers_.empty() || callers_.top() > now) return;
      const auto due = callers_.top();
      callers_.pop();
      Planned planned = next_();
      planned.at_ns = NanosBetween(begin_, due);
      Send(planned, due);
    }
  }
}

void Lane::Send(const Planned& planned, Clock::time_point due) {
  if (!in_flight_.TryAdd(planned.cls, max_in_flight_)) {
    recorder_.RecordDropped(planned.cls, planned.at_ns);
    return;
  }
  std::unique_ptr<SentCall> made;
  if (spare_.empty()) {
    made = std::make_unique<SentCall>();
  } else {
    made = std::move(spare_.back());
    spare_.pop_back();
  }
  SentCall& call = *made.release();  // Finish() owns it again
  const Payload& payload = traffic_.payloads[planned.cls][planned.payload];
  const ClassSpec& spec = traffic_.workload->classes[planned.cls];
  const auto deadline = due + spec.deadline;
  call.planned = planned;
  call.endpoint = static_cast<uint16_t>(links_.NextEndpoint());
  call.path = payload.method;
  call.authority = links_.authority(call.endpoint);
  call.message = payload.message;
  if (traffic_.token != nullptr && traffic_.token->version() != token_version_) MakeMetadata();
  call.metadata = &metadata_.back()[planned.cls];
  call.ends = planned.cancel_after_ns >= 0
                  ? std::min(deadline, due + std::chrono::nanoseconds(planned.cancel_after_ns))
                  : deadline;
  call.sent = Clock::now();
  call.timeout = deadline - call.sent;
  calls_.emplace(call.ends, &call);
  if (call.timeout.count() > 0) links_.Start(call);  // else it is overdue already
}

void Lane::EndOverdue() {
  while (!calls_.empty()) {
    const auto [ends, call] = *calls_.begin();
    if (ends > Clock::now()) return;
    // One that has ended meanwhile is in ended(), and keeps its status.
    if (call->done != Clock::time_point()) return;
    const bool planned = call->planned.cancel_after_ns >= 0;
    links_.Cancel(*call, planned ? grpc::Status(grpc::StatusCode::CANCELLED, "cancelled as planned")
                                 : grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                                                "no answer by the deadline"));
    Finish(*call);
  }
}

void Lane::EndAll() {
  if (schedule_ != nullptr) at_ = schedule_->size();
  callers_ = {};
  end_ = Clock::time_point::min();
  TakeEnded();
  while (!calls_.empty()) {
    SentCall& call = *calls_.begin()->second;
    links_.Cancel(call, {grpc::StatusCode::CANCELLED, "the run was stopped"});
    Finish(call);
  }
}

void Lane::TakeEnded() {
  std::vector<UnaryCall*>& ended = links_.ended();
  for (UnaryCall* const call : ended) Finish(*static_cast<SentCall*>(call));
  ended.clear();
}

void Lane::Finish(SentCall& ended) {
  std::unique_ptr<SentCall> call(&ended);
  calls_.erase({call->ends, call.get()});
  in_flight_.Remove(call->planned.cls);
  if (schedule_ == nullptr) {
    const bool refused = call->status.error_code() == grpc::StatusCode::UNAVAILABLE;
    const auto pause =
        refused ? std::max<std::chrono::nanoseconds>(think_time_, kRefusedPause) : think_time_;
    if (call->done + pause < end_) callers_.push(call->done + pause);
  }
  call = examiner_.Examine(std::move(call));
  if (call == nullptr || spare_.size() >= kMaxSpare) return;
  call->Reset();
  spare_.push_back(std::move(call));
}

}  // namespace castor::load

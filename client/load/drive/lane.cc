#include "client/load/drive/lane.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "client/load/drive/errors.h"

namespace castor::load {
namespace {

// gRPC's monotonic clock is ours.
gpr_timespec Deadline(Clock::time_point time) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch());
  gpr_timespec deadline{};
  deadline.tv_sec = ns.count() / 1'000'000'000;
  deadline.tv_nsec = static_cast<int32_t>(ns.count() % 1'000'000'000);
  deadline.clock_type = GPR_CLOCK_MONOTONIC;
  return deadline;
}

std::chrono::nanoseconds ThisThreadsTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

bool InFlight::TryAdd(uint16_t cls, int64_t most) {
  if (all_.fetch_add(1, std::memory_order_relaxed) >= most && most > 0) {
    all_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  by_class_[cls].fetch_add(1, std::memory_order_relaxed);
  return true;
}

void InFlight::Remove(uint16_t cls) {
  by_class_[cls].fetch_sub(1, std::memory_order_relaxed);
  all_.fetch_sub(1, std::memory_order_relaxed);
}

struct Lane::Call {
  uint64_t id = 0;
  Planned planned;
  uint16_t endpoint = 0;
  Clock::time_point due, sent;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer answer;
  grpc::Status status;
  // Set by the thread that sends, seen by the one that collects: all before it is the latter's
  // then. gRPC's queue orders them as well, but ThreadSanitizer does not see into it.
  std::atomic<bool> handed_over = false;
};

Lane::Lane(const Traffic& traffic, Recorder& recorder, InFlight& in_flight)
    : traffic_(traffic), recorder_(recorder), in_flight_(in_flight) {
  for (const std::string& endpoint : traffic_.endpoints) {
    auto& channels = channels_.emplace_back();
    auto& stubs = stubs_.emplace_back();
    for (int i = 0; i < traffic_.connections; ++i) {
      channels.push_back(Connect(endpoint));
      stubs.push_back(std::make_unique<grpc::GenericStub>(channels.back()));
    }
  }
}

Lane::~Lane() {
  Stop(/*cancel=*/true);
  Await();
}

void Lane::AwaitConnections(std::chrono::seconds patience) {
  const auto until = std::chrono::system_clock::now() + patience;
  for (size_t endpoint = 0; endpoint < channels_.size(); ++endpoint) {
    for (const auto& channel : channels_[endpoint])
      (void)channel->GetState(/*try_to_connect=*/true);
  }
  for (size_t endpoint = 0; endpoint < channels_.size(); ++endpoint) {
    for (const auto& channel : channels_[endpoint]) {
      if (channel->WaitForConnected(until)) continue;
      throw ServerError("cannot connect to " + traffic_.endpoints[endpoint] +
                        ": is the server running there? Set --server");
    }
  }
}

void Lane::StartOpen(const Schedule& schedule, size_t first, size_t stride, int64_t max_in_flight,
                     Clock::time_point begin) {
  schedule_ = &schedule;
  first_ = first;
  stride_ = stride;
  max_in_flight_ = max_in_flight;
  begin_ = begin;
  collector_ = std::thread([this] { Collect(); });
  pacer_ = std::thread([this] { Pace(); });
}

void Lane::StartClosed(std::function<Planned()> next, int64_t callers,
                       std::chrono::nanoseconds think_time, Clock::time_point begin,
                       Clock::time_point from, Clock::time_point end) {
  next_ = std::move(next);
  callers_ = callers;
  think_time_ = think_time;
  begin_ = begin;
  from_ = from;
  end_ = end;
  collector_ = std::thread([this] { Collect(); });
  pacer_ = std::thread([this] { Pace(); });
}

void Lane::Stop(bool cancel) {
  const std::lock_guard lock(mu_);
  stopped_ = true;
  if (cancel) {
    for (const auto& [id, call] : calls_) call->context.TryCancel();
  }
  changed_.notify_all();
}

void Lane::Await() {
  if (pacer_.joinable()) pacer_.join();
  if (collector_.joinable()) {
    queue_.Shutdown();
    collector_.join();
  }
}

std::chrono::nanoseconds Lane::BusiestThread() const { return std::max(pace_time_, collect_time_); }

void Lane::Pace() {
  pthread_setname_np(pthread_self(), "pacer");
  prctl(PR_SET_TIMERSLACK, 1);  // wake when it is time, not when it suits the kernel
  if (schedule_ != nullptr) {
    for (size_t i = first_; i < schedule_->size(); i += stride_) {
      const Planned& planned = (*schedule_)[i];
      const auto due = begin_ + std::chrono::nanoseconds(planned.at_ns);
      if (!ServeTimersUntil(&due)) break;
      Send(planned, due);
    }
  } else if (ServeTimersUntil(&from_)) {
    for (int64_t i = 0; i < callers_; ++i) SendNext(Clock::now());
  }
  ServeTimersUntil(nullptr);
  pace_time_ = ThisThreadsTime();
}

bool Lane::ServeTimersUntil(const Clock::time_point* due) {
  std::unique_lock lock(mu_);
  paced_ = due == nullptr;
  while (true) {
    if (due != nullptr ? stopped_ : calls_.empty() && (thinking_ == 0 || stopped_)) {
      return false;
    }
    const auto now = Clock::now();
    if (!timers_.empty() && timers_.top().due <= now) {
      const Timer timer = timers_.top();
      timers_.pop();
      if (timer.call != 0) {
        // Under the lock: the call may end, and be deleted, on the other thread.
        if (const auto call = calls_.find(timer.call); call != calls_.end()) {
          call->second->context.TryCancel();
        }
        continue;
      }
      --thinking_;
      if (stopped_ || now >= end_) continue;
      lock.unlock();
      SendNext(timer.due);
      lock.lock();
      continue;
    }
    if (due != nullptr && *due <= now) return true;
    if (due == nullptr && timers_.empty()) {
      changed_.wait(lock);
    } else if (due == nullptr || (!timers_.empty() && timers_.top().due < *due)) {
      changed_.wait_until(lock, timers_.top().due);
    } else {
      changed_.wait_until(lock, *due);
    }
  }
}

void Lane::SendNext(Clock::time_point due) {
  Planned planned;
  {
    const std::lock_guard lock(mu_);
    planned = next_();
  }
  planned.at_ns = NanosBetween(begin_, due);
  Send(planned, due);
}

void Lane::Send(const Planned& planned, Clock::time_point due) {
  if (!in_flight_.TryAdd(planned.cls, max_in_flight_)) {
    recorder_.RecordDropped(planned.cls, planned.at_ns);
    return;
  }
  const ClassSpec& spec = traffic_.workload->classes[planned.cls];
  auto* const call = new Call;  // deleted by Finish
  call->planned = planned;
  call->due = due;
  call->context.set_deadline(Deadline(due + spec.deadline));
  if (!spec.tenant.empty()) call->context.AddMetadata("castor-tenant", spec.tenant);
  if (!spec.token.empty()) call->context.AddMetadata("authorization", "Bearer " + spec.token);
  size_t stub = 0;
  {
    const std::lock_guard lock(mu_);
    call->id = ++next_call_;
    stub = next_stub_++;
    calls_[call->id] = call;
    if (planned.cancel_after_ns >= 0) {
      timers_.push({due + std::chrono::nanoseconds(planned.cancel_after_ns), call->id});
    }
  }
  call->endpoint = static_cast<uint16_t>(stub % stubs_.size());
  const auto& stubs = stubs_[call->endpoint];
  const Payload& payload = traffic_.payloads[planned.cls][planned.payload];
  call->sent = Clock::now();
  call->reader = stubs[stub / stubs_.size() % stubs.size()]->PrepareUnaryCall(
      &call->context, payload.method, payload.bytes, &queue_);
  call->reader->StartCall();
  grpc::GenericClientAsyncResponseReader& reader = *call->reader;
  call->handed_over.store(true, std::memory_order_release);
  reader.Finish(&call->answer, &call->status, call);
}

void Lane::Collect() {
  pthread_setname_np(pthread_self(), "collector");
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    Finish(*static_cast<Call*>(tag));
  }
  collect_time_ = ThisThreadsTime();
}

void Lane::Finish(Call& call) {
  const auto done = Clock::now();
  (void)call.handed_over.load(std::memory_order_acquire);
  const Planned& planned = call.planned;
  const Payload& payload = traffic_.payloads[planned.cls][planned.payload];
  Ended ended = {.cls = planned.cls,
                 .endpoint = call.endpoint,
                 .cancelled = planned.cancel_after_ns >= 0,
                 .at_ns = planned.at_ns,
                 .sent_ns = NanosBetween(begin_, call.sent),
                 .done_ns = NanosBetween(begin_, done),
                 .payload = &payload,
                 .status = &call.status};
  if (call.status.ok()) {
    ended.answer_bytes = static_cast<int64_t>(call.answer.Length());
    ended.facts = traffic_.protocol->Read(payload, call.answer);
    if (planned.verify && traffic_.references != nullptr) {
      ended.match =
          traffic_.references->Compare(planned.cls, planned.payload, payload, call.answer);
      ended.exact_error = traffic_.references->ExactError(planned.cls, planned.payload);
    }
  }
  recorder_.Record(ended);
  in_flight_.Remove(planned.cls);
  if (schedule_ == nullptr && think_time_.count() == 0) {
    bool more = done < end_;
    {
      const std::lock_guard lock(mu_);
      more = more && !stopped_;
    }
    if (more) SendNext(done);
  }
  {
    const std::lock_guard lock(mu_);
    calls_.erase(call.id);
    const bool returns =
        schedule_ == nullptr && think_time_.count() > 0 && !stopped_ && done + think_time_ < end_;
    if (returns) {
      timers_.push({done + think_time_});
      ++thinking_;
      changed_.notify_one();
    } else if (paced_ && calls_.empty()) {
      changed_.notify_one();
    }
  }
  delete &call;
}

}  // namespace castor::load

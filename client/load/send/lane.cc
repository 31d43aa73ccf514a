#include "client/load/send/lane.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>

#include "client/load/send/messages.h"

namespace castor::load {
namespace {

// A caller whose connection failed pauses, so that it does not spin.
constexpr std::chrono::milliseconds kPauseAfterFailure{10};

std::chrono::nanoseconds ThisThreadsTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Both clocks are CLOCK_MONOTONIC.
gpr_timespec ToGrpc(Clock::time_point time) {
  const int64_t ns = time.time_since_epoch() / std::chrono::nanoseconds(1);
  return {ns / 1'000'000'000, static_cast<int32_t>(ns % 1'000'000'000), GPR_CLOCK_MONOTONIC};
}

}  // namespace

void Traffic::Authorize(size_t cls, client::Client& by, grpc::ClientContext& context) const {
  const std::string& tenant = classes[cls].tenant;
  if (!tenant.empty()) context.AddMetadata("castor-tenant", tenant);
  if (tokens[cls] == nullptr) {
    (void)by.Authorize(context);
    return;
  }
  const auto header = tokens[cls]->Header();
  if (header.ok()) context.AddMetadata("authorization", *header);
}

struct Lane::Call {
  EndedCall result{};
  grpc::ClientContext context{};
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader{};
  std::list<Call*>::iterator place{};
  std::shared_ptr<Call> self{};  // keeps the call until it ends
};

Lane::Lane(const Traffic& traffic, Sink& sink, InFlight& in_flight)
    : traffic_(traffic), sink_(sink), in_flight_(in_flight) {
  for (const std::string& endpoint : traffic.endpoints) {
    std::vector<Connection>& connections = connections_.emplace_back();
    for (int i = 0; i < traffic.connections; ++i) {
      client::ClientOptions options = traffic.client;
      options.target = endpoint;
      options.transparent_retries = false;
      Connection& made = connections.emplace_back();
      made.client = std::make_unique<client::Client>(std::move(options));
      made.stub = std::make_unique<grpc::GenericStub>(made.client->channel());
      (void)made.client->channel()->GetState(/*try_to_connect=*/true);
    }
  }
}

Lane::~Lane() {
  Stop();
  Await();
  // Without a Start, no thread has drained the queue.
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

void Lane::AwaitConnections(std::chrono::seconds timeout) {
  const auto until = std::chrono::system_clock::now() + timeout;
  for (size_t i = 0; i < connections_.size(); ++i) {
    for (const Connection& connection : connections_[i]) {
      if (connection.client->channel()->WaitForConnected(until)) continue;
      throw ServerError("cannot connect to " + traffic_.endpoints[i] +
                        ": not all connections are up after " + std::to_string(timeout.count()) +
                        " s; does the server limit them? Set --connections");
    }
  }
}

void Lane::StartOpen(const std::vector<Planned>& schedule, size_t first, size_t stride,
                     int64_t max_in_flight, Clock::time_point begin) {
  schedule_ = &schedule;
  at_ = first;
  stride_ = stride;
  max_in_flight_ = max_in_flight;
  Start(begin);
}

void Lane::StartClosed(Picker picker, int64_t callers, std::chrono::nanoseconds think_time,
                       Clock::time_point begin, Clock::time_point from, Clock::time_point end) {
  picker_ = std::make_unique<Picker>(std::move(picker));
  think_time_ = think_time;
  end_ = end;
  for (int64_t i = 0; i < callers; ++i) callers_.push(from);
  Start(begin);
}

void Lane::Start(Clock::time_point begin) {
  begin_ = begin;
  receiver_ = std::thread([this] { ReceiveAll(); });
  sender_ = std::thread([this] { SendAll(); });
}

void Lane::Stop() {
  {
    const std::lock_guard lock(mu_);
    stop_ = true;
    end_ = Clock::time_point::min();
    changed_.notify_all();
  }
  const std::lock_guard lock(calls_mu_);
  cancel_all_ = true;
  for (Call* const call : calls_) call->context.TryCancel();
}

void Lane::Await() {
  if (sender_.joinable()) sender_.join();
  if (receiver_.joinable()) receiver_.join();
}

void Lane::ReleaseQueue() {
  if (queue_users_.fetch_sub(1) == 1) queue_.Shutdown();
}

void Lane::SendAll() {
  pthread_setname_np(pthread_self(), "sender");
  prctl(PR_SET_TIMERSLACK, 1);  // wake on time
  // Run before a server on the same processors, where that is permitted: this thread uses little.
  (void)setpriority(PRIO_PROCESS, 0, -10);
  std::unique_lock lock(mu_);
  while (true) {
    const Clock::time_point next = SendDue(lock);
    if (next == Clock::time_point::max()) break;
    if (next > Clock::now()) changed_.wait_until(lock, next);
  }
  lock.unlock();
  send_time_ = ThisThreadsTime();
  ReleaseQueue();
}

Clock::time_point Lane::SendDue(std::unique_lock<std::mutex>& lock) {
  Clock::time_point next = Clock::time_point::max();
  const Clock::time_point now = Clock::now();
  if (schedule_ != nullptr) {
    lock.unlock();
    while (at_ < schedule_->size()) {
      const Planned& planned = (*schedule_)[at_];
      next = begin_ + std::chrono::nanoseconds(planned.at_ns);
      if (next > now) break;
      at_ += stride_;
      Send(planned, next);
      next = now;  // more may be due
    }
    lock.lock();
    if (at_ >= schedule_->size() || stop_) next = Clock::time_point::max();
  } else {
    while (!callers_.empty() && callers_.top() <= std::min(now, end_)) {
      Planned planned = picker_->Next();
      const Clock::time_point due = callers_.top();
      callers_.pop();
      planned.at_ns = NanosBetween(begin_, due);
      lock.unlock();
      Send(planned, due);
      lock.lock();
    }
    if (now < end_) next = callers_.empty() ? end_ : std::min(end_, callers_.top());
  }
  while (!cancellations_.empty() && cancellations_.top().first <= now) {
    cancellations_.top().second->context.TryCancel();
    cancellations_.pop();
  }
  if (!cancellations_.empty() && !stop_) next = std::min(next, cancellations_.top().first);
  return next;
}

void Lane::Send(const Planned& planned, Clock::time_point due) {
  if (!in_flight_.TryAdd(planned.cls, max_in_flight_)) {
    sink_.Dropped(planned);
    return;
  }
  const ClassSpec& spec = traffic_.classes[planned.cls];
  const Payload& payload = traffic_.payloads[planned.cls][planned.payload];
  const auto call = std::make_shared<Call>();
  call->self = call;
  const size_t turn = turn_.fetch_add(1, std::memory_order_relaxed);
  call->result.planned = planned;
  call->result.due = due;
  call->result.endpoint = turn % connections_.size();
  const std::vector<Connection>& connections = connections_[call->result.endpoint];
  const Connection& connection = connections[turn / connections_.size() % connections.size()];
  call->context.set_deadline(ToGrpc(due + spec.deadline));
  traffic_.Authorize(planned.cls, *connection.client, call->context);
  {
    const std::lock_guard lock(calls_mu_);
    calls_.push_front(call.get());
    call->place = calls_.begin();
    if (cancel_all_) call->context.TryCancel();
  }
  queue_users_.fetch_add(1);
  call->result.sent = Clock::now();
  call->reader = connection.stub->PrepareUnaryCall(&call->context, payload.method(),
                                                   grpc::ByteBuffer(&payload.message, 1), &queue_);
  call->reader->StartCall();
  call->reader->Finish(&call->result.answer, &call->result.status, call.get());
  if (planned.cancel_after_ns < 0) return;
  const std::lock_guard lock(mu_);
  cancellations_.emplace(due + std::chrono::nanoseconds(planned.cancel_after_ns), call);
  changed_.notify_all();
}

void Lane::ReceiveAll() {
  pthread_setname_np(pthread_self(), "receiver");
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    const Clock::time_point done = Clock::now();
    const std::shared_ptr<Call> call = std::move(static_cast<Call*>(tag)->self);
    call->result.done = done;
    {
      const std::lock_guard lock(calls_mu_);
      calls_.erase(call->place);
    }
    in_flight_.Remove(call->result.planned.cls);
    if (schedule_ == nullptr) SendNextOfCaller(call->result);
    sink_.Ended(std::move(call->result));
    ReleaseQueue();
  }
  receive_time_ = ThisThreadsTime();
}

void Lane::SendNextOfCaller(const EndedCall& ended) {
  const bool failed = ended.status.error_code() == grpc::StatusCode::UNAVAILABLE;
  const Clock::time_point due =
      ended.done +
      (failed ? std::max<std::chrono::nanoseconds>(think_time_, kPauseAfterFailure) : think_time_);
  std::unique_lock lock(mu_);
  if (due >= end_) return;
  if (due > ended.done) {
    callers_.push(due);
    changed_.notify_all();
    return;
  }
  Planned planned = picker_->Next();
  lock.unlock();
  planned.at_ns = NanosBetween(begin_, due);
  Send(planned, due);
}

}  // namespace castor::load

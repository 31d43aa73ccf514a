// Sends a stream of requests over connections of its own: one thread sends them when they are due,
// another receives the answers. Sending never waits for an answer.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/load/send/messages.h"
#include "client/load/workload/schedule.h"
#include "client/load/workload/workload.h"

namespace castor::load {

using Clock = std::chrono::steady_clock;

inline int64_t NanosBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

// Shared by all lanes of a run, and constant.
struct Traffic {
  std::vector<ClassSpec> classes{};
  std::vector<std::vector<Payload>> payloads{};  // by class
  std::vector<std::string> endpoints{};          // gRPC targets; requests take them in turn
  int connections = 8;                           // of each lane to each endpoint
  client::ClientOptions client{};                // TLS and the token; its target is not used
  // By class; null for classes without a token of their own.
  std::vector<std::shared_ptr<client::TokenSource>> tokens{};

  // Adds the class's tenant, and its token or else the client's, to a call. A token that cannot be
  // read is left out, and the server refuses the call.
  void Authorize(size_t cls, client::Client& by, grpc::ClientContext& context) const;
};

// A call that has ended.
struct EndedCall {
  Planned planned{};
  size_t endpoint = 0;
  Clock::time_point due{}, sent{}, done{};
  grpc::Status status{};
  grpc::ByteBuffer answer{};
};

// Learns the ends of a lane's requests. The receiving thread calls Ended; both threads may call
// Dropped.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void Ended(EndedCall call) = 0;
  virtual void Dropped(const Planned& planned) = 0;  // not sent: the cap was reached
};

// Counts the requests in flight of all lanes of a run. Thread-safe.
class InFlight {
 public:
  explicit InFlight(size_t classes) : by_class_(classes) {}

  // False if `most` are already in flight; 0 means no bound.
  bool TryAdd(uint16_t cls, int64_t most) {
    if (all_.fetch_add(1, std::memory_order_relaxed) >= most && most > 0) {
      all_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    by_class_[cls].fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  void Remove(uint16_t cls) {
    by_class_[cls].fetch_sub(1, std::memory_order_relaxed);
    all_.fetch_sub(1, std::memory_order_relaxed);
  }
  int64_t all() const { return all_.load(std::memory_order_relaxed); }
  int64_t of(size_t cls) const { return by_class_[cls].load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> all_ = 0;
  std::vector<std::atomic<int64_t>> by_class_;
};

class Lane {
 public:
  // Begins to connect. The arguments must outlive the lane.
  Lane(const Traffic& traffic, Sink& sink, InFlight& in_flight);
  // Calls Stop() and Await().
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Waits until every connection is up. Throws ServerError that names an endpoint that is not
  // reached within `timeout`.
  void AwaitConnections(std::chrono::seconds timeout);

  // Call one of the two, once. They do not block. Times count from `begin`.
  //
  // Sends every `stride`-th request of `schedule` from number `first`, each at its time. `schedule`
  // must outlive the lane. Drops requests while all lanes have `max_in_flight` in flight.
  void StartOpen(const std::vector<Planned>& schedule, size_t first, size_t stride,
                 int64_t max_in_flight, Clock::time_point begin);
  // Simulates `callers` that each send a request, wait for its answer and for `think_time`, and
  // send the next, between `from` and `end`.
  void StartClosed(Picker picker, int64_t callers, std::chrono::nanoseconds think_time,
                   Clock::time_point begin, Clock::time_point from, Clock::time_point end);

  // Stops sending, and cancels the requests in flight. Thread-safe.
  void Stop();

  // Waits until all requests are sent and have ended; each has a deadline.
  void Await();

  // The processor time of its busier thread. Call after Await.
  std::chrono::nanoseconds BusiestThread() const { return std::max(send_time_, receive_time_); }

 private:
  struct Call;
  struct Connection {
    std::unique_ptr<client::Client> client;
    std::unique_ptr<grpc::GenericStub> stub;
  };
  using Cancellation = std::pair<Clock::time_point, std::shared_ptr<Call>>;

  void Start(Clock::time_point begin);
  void SendAll();
  void ReceiveAll();
  // Sends what is due. Returns the time of the next action; time_point::max() if there is none.
  Clock::time_point SendDue(std::unique_lock<std::mutex>& lock);
  void Send(const Planned& planned, Clock::time_point due);
  void SendNextOfCaller(const EndedCall& ended);
  void ReleaseQueue();

  const Traffic& traffic_;
  Sink& sink_;
  InFlight& in_flight_;
  std::vector<std::vector<Connection>> connections_;  // by endpoint
  grpc::CompletionQueue queue_;
  std::atomic<size_t> turn_ = 0;

  // The requests to send. In an open loop, only the sending thread uses these.
  Clock::time_point begin_;
  const std::vector<Planned>* schedule_ = nullptr;  // null: a closed loop
  size_t at_ = 0, stride_ = 1;
  int64_t max_in_flight_ = 0;
  std::chrono::nanoseconds think_time_{0};

  std::mutex mu_;
  std::condition_variable changed_;
  bool stop_ = false;               // guarded by mu_, like the next four
  std::unique_ptr<Picker> picker_;  // of a closed loop
  Clock::time_point end_{};         // of a closed loop
  std::priority_queue<Clock::time_point, std::vector<Clock::time_point>, std::greater<>>
      callers_;  // when each idle caller sends next
  std::priority_queue<Cancellation, std::vector<Cancellation>, std::greater<>> cancellations_;

  std::mutex calls_mu_;
  std::list<Call*> calls_;  // in flight; guarded by calls_mu_, like the next
  bool cancel_all_ = false;
  std::atomic<int64_t> queue_users_ = 1;  // calls in flight, and the sending thread

  std::chrono::nanoseconds send_time_{0}, receive_time_{0};
  std::thread sender_, receiver_;
};

}  // namespace castor::load

// One stream of requests: a thread that sends them when they are due, and one that takes the
// answers. The first never waits for the second.
#pragma once

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <unordered_map>
#include <vector>

#include "client/load/drive/clock.h"
#include "client/load/drive/recorder.h"
#include "client/load/drive/traffic.h"
#include "client/load/schedule/schedule.h"

namespace castor::load {

// Requests in flight, of all lanes of a run.
class InFlight {
 public:
  explicit InFlight(size_t classes) : by_class_(classes) {}

  // False when `most` are in flight already; 0: there is no bound.
  bool TryAdd(uint16_t cls, int64_t most);
  void Remove(uint16_t cls);
  int64_t all() const { return all_.load(std::memory_order_relaxed); }
  int64_t of(size_t cls) const { return by_class_[cls].load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> all_ = 0;
  std::vector<std::atomic<int64_t>> by_class_;
};

class Lane {
 public:
  // Opens its connections; `traffic`, `recorder` and `in_flight` must outlive it.
  Lane(const Traffic& traffic, Recorder& recorder, InFlight& in_flight);
  // Ends what is in flight, and waits for it.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Waits until every connection is up. Throws ServerError that names the endpoint when one is
  // not within `patience`.
  void AwaitConnections(std::chrono::seconds patience);

  // Sends every `stride`-th request of `schedule` from `first` on, each at its time from `begin`.
  // With `max_in_flight` requests of all lanes in flight, further ones are dropped. Returns at
  // once.
  void StartOpen(const Schedule& schedule, size_t first, size_t stride, int64_t max_in_flight,
                 Clock::time_point begin);

  // `callers` that each send a request, wait for its answer and for `think_time`, and send the
  // next, from `from` on and until `end`. Times count from `begin`. Returns at once.
  void StartClosed(std::function<Planned()> next, int64_t callers,
                   std::chrono::nanoseconds think_time, Clock::time_point begin,
                   Clock::time_point from, Clock::time_point end);

  // Sends nothing more. With `cancel`, also ends what is in flight.
  void Stop(bool cancel);

  // Waits until all is sent and every request has ended: each has a deadline.
  void Await();

  // Processor time of its busier thread. Call after Await.
  std::chrono::nanoseconds BusiestThread() const;

 private:
  struct Call;
  struct Timer {
    Clock::time_point due;
    uint64_t call = 0;  // to cancel; 0: a caller of the closed loop returns
    bool operator>(const Timer& other) const { return due > other.due; }
  };

  void Pace();
  void Collect();
  void Send(const Planned& planned, Clock::time_point due);
  void SendNext(Clock::time_point due);
  void Finish(Call& call);
  // Serves timers until `due`; false if the lane was stopped before. Without `due`: until nothing
  // is in flight or to come, stopped or not.
  bool ServeTimersUntil(const Clock::time_point* due);

  const Traffic& traffic_;
  Recorder& recorder_;
  InFlight& in_flight_;
  std::vector<std::vector<std::shared_ptr<grpc::Channel>>> channels_;   // by endpoint
  std::vector<std::vector<std::unique_ptr<grpc::GenericStub>>> stubs_;  // likewise
  grpc::CompletionQueue queue_;

  // What to send; constant while the lane runs.
  Clock::time_point begin_;
  const Schedule* schedule_ = nullptr;  // null: a closed loop
  size_t first_ = 0, stride_ = 1;
  int64_t max_in_flight_ = 0;
  int64_t callers_ = 0;
  std::function<Planned()> next_;
  std::chrono::nanoseconds think_time_{0};
  Clock::time_point from_, end_;

  std::mutex mu_;
  std::condition_variable changed_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::unordered_map<uint64_t, Call*> calls_;  // in flight
  int64_t thinking_ = 0;                       // callers of the closed loop between two requests
  uint64_t next_call_ = 0;
  size_t next_stub_ = 0;
  bool paced_ = false;  // Pace has sent all
  bool stopped_ = false;

  std::chrono::nanoseconds pace_time_{0}, collect_time_{0};
  std::thread pacer_, collector_;
};

}  // namespace castor::load

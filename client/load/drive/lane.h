// One stream of requests, on a thread that sends them when they are due and takes the answers as
// they come. It never waits for an answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "client/load/base/clock.h"
#include "client/load/drive/examiner.h"
#include "client/load/drive/in_flight.h"
#include "client/load/drive/links.h"
#include "client/load/drive/recorder.h"
#include "client/load/drive/sent_call.h"
#include "client/load/drive/traffic.h"
#include "client/load/schedule/schedule.h"

namespace castor::load {

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
  void AwaitConnections(std::chrono::seconds patience) { links_.AwaitAll(patience); }

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

  // Sends nothing more, and ends what is in flight. Any thread.
  void Stop();

  // Waits until all is sent and every request has ended: each has a deadline.
  void Await();

  // Processor time of its busier thread, but for what only served to be on time. Call after Await.
  std::chrono::nanoseconds BusiestThread() const;

 private:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  void Start(Clock::time_point begin);
  void Run();
  void MakeMetadata();
  void SendDue();
  void Send(const Planned& planned, Clock::time_point due);
  // Ends the calls whose time has come.
  void EndOverdue();
  void EndAll();
  // Answered, or ended here: it is not in flight any more.
  void TakeEnded();
  void Finish(SentCall& call);
  // Whether nothing is left to send or to wait for.
  bool IsOver() const;
  // When there is something to do without an answer coming; nullopt: never.
  std::optional<Clock::time_point> NextMoment() const;

  const Traffic& traffic_;
  Recorder& recorder_;
  InFlight& in_flight_;
  // By class; the last are today's. Calls that wait to be sent may still have the token of others.
  std::list<std::vector<Metadata>> metadata_;
  uint64_t token_version_ = 0;
  Examiner examiner_;
  Links links_;

  // What to send; constant while the lane runs.
  Clock::time_point begin_;
  const Schedule* schedule_ = nullptr;  // null: a closed loop
  size_t stride_ = 1;
  int64_t max_in_flight_ = 0;
  std::function<Planned()> next_;
  std::chrono::nanoseconds think_time_{0};
  Clock::time_point end_;

  size_t at_ = 0;  // in the schedule
  // Of the closed loop: when each idle caller sends its next request.
  std::priority_queue<Clock::time_point, std::vector<Clock::time_point>, std::greater<>> callers_;
  absl::btree_set<std::pair<Clock::time_point, SentCall*>> calls_;  // in flight, by SentCall::ends
  std::vector<std::unique_ptr<SentCall>> spare_;                    // their memory is used again

  std::atomic<bool> stop_ = false;
  std::chrono::nanoseconds thread_time_{0};
  std::thread thread_;
};

}  // namespace castor::load

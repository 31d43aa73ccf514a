// The threads that tokenize text requests, before these are queued for the device.
//
// Push may be called from any thread. What waits here is bounded by admission. Requests that were
// answered in the meantime are dropped, those at hand between two texts or parts of a long one.
//
// A request is taken in slices, so that one with many or long texts does not hold up the others:
// after each it waits again. By priority; then the one goes first whose next slice would end first
// if each had begun when it came to wait, in bytes of text. So a short text overtakes long ones,
// but each only by so much as the long one is longer: nobody waits for ever. What cannot be
// divided, a very long text, never has all of several threads.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/host_memory.h"
#include "engine/base/mutex.h"
#include "engine/jobs/job.h"
#include "engine/jobs/rank.h"
#include "engine/scheduling/counters.h"
#include "engine/scheduling/scheduler.h"

namespace castor {

class TokenizerPool {
 public:
  // 0 threads: one for each core. All references must outlive the pool.
  TokenizerPool(int threads, HostPool& host_pool, Scheduler& scheduler, Clock& clock,
                Counters& counters);

  // Finishes the requests at hand, drops those that wait (the owner has drained: they were
  // answered) and joins.
  ~TokenizerPool();

  // Takes a job that the scheduler has opened, whose answer is therefore owed. If there is no
  // memory for a node, the process ends rather than lose it.
  void Push(std::unique_ptr<Job> job) noexcept;

 private:
  // The smaller is served first.
  struct Turn {
    int level = 0;      // of the rank
    int64_t due = 0;    // on the clock of `served_`
    Rank rank;          // unique
    int64_t bytes = 0;  // of text, in the next slice

    auto operator<=>(const Turn&) const = default;
  };
  using Waiting = std::map<Turn, std::unique_ptr<Job>>;

  Turn TurnOf(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first that may be begun, or end().
  Waiting::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Stop();  // ends and joins the threads
  void Run();
  // Works on the job for a slice. True: it waits for its next; false: it was handed on or dropped.
  bool Tokenize(std::unique_ptr<Job>& job);

  const int thread_count_;
  HostPool& host_pool_;
  Scheduler& scheduler_;
  Clock& clock_;
  Counters& counters_;

  Mutex mu_;
  CondVar work_;
  Waiting queue_ ABSL_GUARDED_BY(mu_);
  int long_at_hand_ ABSL_GUARDED_BY(mu_) = 0;  // threads that work on very long texts
  int64_t served_ ABSL_GUARDED_BY(mu_) = 0;    // bytes of text in all slices that were begun
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace castor

// The threads that tokenize text requests before they are queued for the device.
//
// Push may be called from any thread. What waits here is bounded by admission. Requests that were
// answered in the meantime are dropped; one that is being tokenized, between two texts or two parts
// of a long one.
//
// A request is tokenized in slices and waits again after each, so that one with many or long texts
// does not hold up the others. The order is fair between tenants by bytes of text (fair_queue.h).
// Within a tenant it is that of virtual finish times: the bytes of text begun when the request came
// to wait, plus those of its next slice, plus a head start for each level of priority above its
// own. So a short text overtakes a long one only if it comes at most the difference of their bytes
// later, and nothing starves. A very long text cannot be divided; such texts never occupy all
// threads of several.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/host_memory.h"
#include "engine/base/mutex.h"
#include "engine/forecast/forecast.h"
#include "engine/jobs/job.h"
#include "engine/jobs/rank.h"
#include "engine/scheduling/counters.h"
#include "engine/scheduling/fair_queue.h"
#include "engine/scheduling/scheduler.h"

namespace castor {

class TokenizerPool {
 public:
  // 0 threads: one for each core. All references must outlive the pool.
  TokenizerPool(int threads, TenantTablePtr tenants, HostPool& host_pool, Scheduler& scheduler,
                Forecast& forecast, Clock& clock, Counters& counters);

  // Finishes or stops the current slices, drops all requests (the owner has drained, so they were
  // answered) and joins.
  ~TokenizerPool();

  // Takes a job that the scheduler has opened, so an answer is owed. If there is no memory for a
  // node, the process ends.
  void Push(std::unique_ptr<Job> job) noexcept;

 private:
  // The smallest is served first.
  struct Turn {
    int64_t due = 0;    // virtual finish time
    Rank rank;          // unique
    int64_t bytes = 0;  // of text, in the next slice

    auto operator<=>(const Turn&) const = default;
  };

  Turn TurnOf(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the first that may start; false if there is none.
  bool TakeNext(Turn* turn, std::unique_ptr<Job>* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Stop();  // ends and joins the threads
  void Run();
  // Tokenizes one slice of the job. True: there is more to do; false: it was handed on or dropped.
  bool Tokenize(std::unique_ptr<Job>& job);
  // Stages a job that is tokenized, and predicts its time and memory again.
  absl::Status Finish(Job* job);

  const int thread_count_;
  HostPool& host_pool_;
  Scheduler& scheduler_;
  Forecast& forecast_;
  Clock& clock_;
  Counters& counters_;

  Mutex mu_;
  CondVar work_;
  FairQueue<Turn, std::unique_ptr<Job>> queue_ ABSL_GUARDED_BY(mu_);
  int long_at_hand_ ABSL_GUARDED_BY(mu_) = 0;  // threads that work on very long texts
  int64_t served_ ABSL_GUARDED_BY(mu_) = 0;    // bytes of text in all slices begun so far
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace castor

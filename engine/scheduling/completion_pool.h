// The threads that call completions: never the thread that launches kernels, so that a slow caller
// does not hold up the device.
//
// The order is fair between tenants by bytes of answers (fair_queue.h), and first come, first
// served within one. Large answers, whose copying and sending takes a while, never occupy all
// threads of several.
//
// Post may be called from any thread. What waits here is bounded by admission: a request gives its
// reservation back only when its answer is delivered.
#pragma once

#include <compare>
#include <cstdint>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/jobs/job.h"
#include "engine/scheduling/counters.h"
#include "engine/scheduling/fair_queue.h"
#include "engine/scheduling/outstanding.h"

namespace castor {

class CompletionPool {
 public:
  // `counters` and `outstanding` must outlive the pool.
  CompletionPool(int threads, TenantTablePtr tenants, Counters& counters, Outstanding& outstanding);

  // Delivers all that was posted, then joins.
  ~CompletionPool();

  // If the queue cannot grow, the process ends: an answer that is owed is never lost.
  void Post(std::vector<Answer> answers) noexcept;

 private:
  // The smallest is served first.
  struct Turn {
    uint64_t number = 0;  // unique, as posted
    int64_t bytes = 0;

    auto operator<=>(const Turn&) const = default;
  };

  void Stop();  // ends and joins the threads
  void Run() noexcept;
  // Takes the first that may be delivered now; false if there is none.
  bool TakeNext(Turn* turn, Answer* answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int thread_count_;
  Counters& counters_;
  Outstanding& outstanding_;

  Mutex mu_;
  CondVar work_;
  FairQueue<Turn, Answer> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t posted_ ABSL_GUARDED_BY(mu_) = 0;
  int large_at_hand_ ABSL_GUARDED_BY(mu_) = 0;  // threads that deliver large answers
  int idle_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace castor

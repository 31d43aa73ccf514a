// The threads that call completions: never the thread that launches kernels, so that a slow caller
// does not hold up the device.
//
// Post may be called from any thread. What waits here is bounded by admission: a request gives its
// reservation back only when its answer is delivered.
#pragma once

#include <deque>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/jobs/job.h"
#include "engine/scheduling/counters.h"
#include "engine/scheduling/outstanding.h"

namespace castor {

class CompletionPool {
 public:
  // `counters` and `outstanding` must outlive the pool.
  CompletionPool(int threads, Counters& counters, Outstanding& outstanding);

  // Delivers all that was posted, then joins.
  ~CompletionPool();

  // If the queue cannot grow, the process ends: an answer that is owed is never lost.
  void Post(std::vector<Answer> answers) noexcept;

 private:
  void Stop();  // ends and joins the threads
  void Run() noexcept;

  Counters& counters_;
  Outstanding& outstanding_;

  Mutex mu_;
  CondVar work_;
  std::deque<Answer> queue_ ABSL_GUARDED_BY(mu_);
  int idle_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace castor

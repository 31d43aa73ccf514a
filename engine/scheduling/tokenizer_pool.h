// The threads that tokenize text requests, before these are queued for the device.
//
// Push may be called from any thread. What waits here is bounded by admission and served in the
// order of policy.h; requests that were answered in the meantime are dropped unread.
#pragma once

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/host_memory.h"
#include "engine/base/mutex.h"
#include "engine/scheduling/counters.h"
#include "engine/scheduling/encoder_functions.h"
#include "engine/scheduling/job.h"
#include "engine/scheduling/policy.h"
#include "engine/scheduling/scheduler.h"

namespace castor {

class TokenizerPool {
 public:
  // All references must outlive the pool.
  TokenizerPool(int threads, const EncoderFunctions& encoder, HostPool& host_pool,
                Scheduler& scheduler, Clock& clock, Counters& counters);

  // Finishes the requests at hand, drops those that wait (the owner has drained: they were
  // answered) and joins.
  ~TokenizerPool();

  // Takes a job that the scheduler has opened.
  void Push(std::unique_ptr<Job> job);

 private:
  void Run();
  void Tokenize(std::unique_ptr<Job> job);

  const EncoderFunctions& encoder_;
  HostPool& host_pool_;
  Scheduler& scheduler_;
  Clock& clock_;
  Counters& counters_;

  Mutex mu_;
  CondVar work_;
  std::map<Rank, std::unique_ptr<Job>> queue_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace castor

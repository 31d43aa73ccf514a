#include "engine/scheduling/tokenizer_pool.h"

#include <utility>

#include "engine/scheduling/guarded.h"
#include "engine/scheduling/staging.h"

namespace castor {

TokenizerPool::TokenizerPool(int threads, const EncoderFunctions& encoder, HostPool& host_pool,
                             Scheduler& scheduler, Clock& clock, Counters& counters)
    : encoder_(encoder),
      host_pool_(host_pool),
      scheduler_(scheduler),
      clock_(clock),
      counters_(counters) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

TokenizerPool::~TokenizerPool() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  work_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void TokenizerPool::Push(std::unique_ptr<Job> job) {
  {
    MutexLock lock(mu_);
    const Rank rank = RankOf(*job);
    queue_.emplace(rank, std::move(job));
  }
  work_.NotifyOne();
}

void TokenizerPool::Run() {
  while (true) {
    std::unique_ptr<Job> job;
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stopped_) work_.Wait(mu_);
      if (stopped_) return;
      job = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
    }
    if (scheduler_.IsOpen(*job)) Tokenize(std::move(job));
  }
}

void TokenizerPool::Tokenize(std::unique_ptr<Job> job) {
  const TimePoint start = clock_.Now();
  const absl::Status status = Guarded([&] { return StageEncode(encoder_, host_pool_, job.get()); });
  counters_.Tokenized(Microseconds(start, clock_.Now()) * 1e-6);
  if (status.ok()) {
    scheduler_.Tokenized(std::move(job));
  } else {
    scheduler_.Refuse(std::move(job), status);
  }
}

}  // namespace castor

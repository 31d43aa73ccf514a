#include "tests/bench/load/open_loop.h"

#include <sys/prctl.h>

#include <deque>
#include <random>
#include <thread>

#include "engine/base/mutex.h"

namespace castor::bench {

Outcomes RunOpenLoop(Caller& caller, const std::vector<grpc::ByteBuffer>& requests,
                     const OpenLoopOptions& options, const std::atomic<bool>* stop) {
  prctl(PR_SET_TIMERSLACK, 1000);  // of this thread, in nanoseconds: wake on time
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> gap(options.rate);
  std::uniform_int_distribution<size_t> pick(0, requests.size() - 1);

  Mutex mu;
  CondVar ended;
  size_t open = 0;           // guarded by mu
  std::deque<Outcome> made;  // its elements stay where they are; each call writes its own
  const auto begin = Clock::now();
  std::chrono::duration<double> at{0};
  for (;;) {
    at += std::chrono::duration<double>(options.regular ? 1 / options.rate : gap(random));
    if (at >= options.length || (stop != nullptr && stop->load())) break;
    Outcome& outcome = made.emplace_back();
    outcome.intended = begin + std::chrono::duration_cast<Clock::duration>(at);
    std::this_thread::sleep_until(outcome.intended);
    {
      MutexLock lock(mu);
      ++open;
    }
    outcome.sent = Clock::now();
    const CallSettings settings = {.deadline = outcome.intended + options.deadline,
                                   .tenant = options.tenant};
    (void)caller.Start(options.method, requests[pick(random)], settings,
                       [&outcome, &mu, &open, &ended](Answer answer) {
                         outcome.ended = answer.ended;
                         outcome.code = answer.code;
                         outcome.reason = std::move(answer.reason);
                         MutexLock lock(mu);
                         --open;
                         ended.NotifyOne();
                       });
  }
  MutexLock lock(mu);
  while (open > 0) ended.Wait(mu);
  Outcomes outcomes;
  outcomes.begin = begin;
  outcomes.length = std::min(at, options.length);
  outcomes.deadline = options.deadline;
  outcomes.calls.assign(made.begin(), made.end());
  return outcomes;
}

}  // namespace castor::bench

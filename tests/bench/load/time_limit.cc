#include "tests/bench/load/time_limit.h"

#include <unistd.h>

#include <cstdio>

#include "tests/bench/load/caller.h"

namespace castor::bench {

TimeLimit::TimeLimit(const Scenario& scenario, const Settings& settings) {
  // A server may take minutes over a long request.
  const auto limit = std::chrono::seconds(600) + scenario.phases * settings.rounds * settings.phase;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  watcher_ = std::thread([this, name = scenario.name, end] {
    MutexLock lock(mu_);
    while (!done_) {
      if (changed_.WaitUntil(mu_, end) || Clock::now() < end || done_) continue;
      std::fprintf(stderr, "load_bench: %s hangs\n", name);
      std::fflush(nullptr);
      _exit(3);  // the kernel then kills the servers
    }
  });
}

TimeLimit::~TimeLimit() {
  {
    MutexLock lock(mu_);
    done_ = true;
    changed_.NotifyOne();
  }
  watcher_.join();
}

}  // namespace castor::bench

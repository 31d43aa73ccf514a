#include "tests/bench/load/time_limit.h"

#include <unistd.h>

#include <cstdio>

#include "tests/bench/load/caller.h"

namespace castor::bench {

TimeLimit::TimeLimit(const std::string& scenario, const Settings& settings) {
  // No scenario has more than twenty phases a round, and a server may take minutes over a long
  // request.
  const auto limit = std::chrono::seconds(600) + 20 * settings.rounds * settings.phase;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  watcher_ = std::thread([this, scenario, end] {
    MutexLock lock(mu_);
    while (!done_) {
      if (changed_.WaitUntil(mu_, end) || Clock::now() < end || done_) continue;
      std::fprintf(stderr, "load_bench: %s hangs\n", scenario.c_str());
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

// Ends the program when a scenario takes far longer than it should: a bench must not hang.
#pragma once

#include <thread>

#include "engine/base/mutex.h"
#include "tests/bench/load/scenario.h"

namespace castor::bench {

class TimeLimit {
 public:
  TimeLimit(const Scenario& scenario, const Settings& settings);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  Mutex mu_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_;
};

}  // namespace castor::bench

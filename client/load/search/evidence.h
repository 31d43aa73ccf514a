// How far runs at one rate were from their objectives, and how sure that is. Requests that wait in
// one queue are late together, so that a share of late ones among thousands of requests is far less
// certain than as many independent ones would make it: the spread between stretches of the run says
// how much.
#pragma once

#include <cstdint>
#include <vector>

#include "client/load/measure/run_data.h"

namespace castor::load {

// Of one or more runs at the same rate, which count together. Not thread-safe.
class Evidence {
 public:
  void Add(const RunData& run);

  // The worst of all goals: the share of requests that missed it, over the share that may; 1 is the
  // edge. 0 when no class has a goal.
  double Worst() const;

  // By how many standard errors the goals are met, the least of all; negative when one is missed.
  // Infinite when no class has a goal.
  double Sureness() const;

 private:
  struct Goal {
    double allowed = 0;  // share
    int64_t missed = 0, total = 0;
    std::vector<std::pair<double, double>> stretches{};  // missed, total of each
  };

  std::vector<Goal> goals_;
};

}  // namespace castor::load

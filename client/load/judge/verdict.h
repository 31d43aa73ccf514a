// Whether a run may be believed, and whether it met its objectives. Two questions: a run of a slow
// server is VALID; one whose client could not keep up is not, however fast the answers.
#pragma once

#include <string>
#include <vector>

#include "client/load/measure/run_data.h"

namespace castor::load {

// One rule's finding, such as {"client-lag", false, "p99 of the client's lag is 3.1 ms, more than
// ..."}. Names are listed in README.md, and do not change.
struct Finding {
  std::string rule;
  bool passed = true;
  std::string text;  // a sentence with the figures, whether it passed or not
};

struct Verdict {
  std::vector<Finding> validity;    // the run is VALID if all passed
  std::vector<Finding> objectives;  // the objectives are met if all passed

  bool valid() const;
  bool met() const;
};

struct Rules {
  double min_seconds = 10;
  double confidence = 0.99;     // of a percentile's goal, by early stopping
  double max_lag_share = 0.05;  // p99 of lag over p50 of latency, unless below max_lag_ns
  int64_t max_lag_ns = 1'000'000;
  double max_thread_share = 0.9;  // of one core
  // Growth over the run, relative to the mean, of work in flight (open loop), latency and lag.
  double max_drift = 0.1;
  // Of planned requests, dropped at the cap on requests in flight. 0: whoever asks for a cap learns
  // when it was reached, since latencies then are those of less load than was planned.
  double max_dropped_share = 0;
};

// Rules: duration, early-stopping (as MLPerf's LoadGen: enough requests for the confidence),
// stationary, client-lag, client-cpu, client-dropped, all-answered, counts-agree, verified. Each
// has one finding, also when there was nothing to check. Objectives have one finding for each of
// the classes' goals, named "CLASS: p99 <= 50.00 ms" or "CLASS: errors <= 0.1 %".
Verdict Judge(const RunData& run, const Rules& rules = {});

}  // namespace castor::load

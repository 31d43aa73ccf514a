// Judges whether a run is VALID, and whether it met its objectives. A run of a slow server is
// VALID; a run whose client could not keep up is not, however fast the answers.
#pragma once

#include <string>
#include <vector>

#include "client/load/results/run_data.h"

namespace castor::load {

// The cause of a broken rule, as far as it concerns the run's rate.
enum class Cause {
  kTooShort,  // a longer run may pass
  kOverload,  // work piles up at this rate
  kClient,    // the client did not keep up
  kOther,     // no other rate would help
};

// One rule's finding, such as {"client-lag", false, "the client sent late: ..."}. README.md lists
// the names, which do not change.
struct Finding {
  std::string rule{};
  bool passed = true;
  std::string text{};  // a sentence with the figures, whether it passed or not
  Cause cause = Cause::kOther;
  bool unsure = false;  // the objective did not pass, but a longer run may show that it is met
};

struct Verdict {
  std::vector<Finding> validity;    // the run is VALID if all passed
  std::vector<Finding> objectives;  // the objectives are met if all passed

  bool valid() const;
  bool met() const;
};

struct Rules {
  double min_seconds = 10;
  double confidence = 0.99;  // of each finding that depends on chance
  // The client's lag may add the greater of these two to the median and to p99 of latency.
  double max_lag_share = 0.2;
  double max_lag_ns = 2e6;
  double max_thread_share = 0.9;  // of one core
  double max_drift = 0.1;         // growth over the run, relative to the mean, of queue and latency
};

// Rules: duration, enough-requests, stationary, client-lag, client-cpu, client-dropped, shares,
// counts-agree, verified. Each has a finding, even if there was nothing to check. Objectives have a
// finding for each goal of a class, named "CLASS: p99 <= 50.0 ms" or "CLASS: errors <= 0.1 %".
Verdict Judge(const RunData& run, const Rules& rules = {});

// "VALID", or "INVALID: client-lag, client-cpu"; "objectives met", "objectives MISSED: 1 of 3", or
// "no objectives".
std::string ValidityText(const Verdict& verdict);
std::string ObjectivesText(const Verdict& verdict);

}  // namespace castor::load

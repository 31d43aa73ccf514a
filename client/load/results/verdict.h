// Whether a run may be believed, and whether it met its objectives. Two questions: a run of a slow
// server is VALID; one whose client could not keep up is not, however fast the answers.
#pragma once

#include <string>
#include <vector>

#include "client/load/results/run_data.h"

namespace castor::load {

// What a failed rule of validity says about the run's rate.
enum class Cause {
  kTooShort,  // a longer run will tell
  kOverload,  // work piles up: nobody can keep up such a rate
  kClient,    // the client did not keep up
  kOther,     // something is wrong that no other rate would mend
};

// One rule's finding, such as {"client-lag", false, "the client sent late: ..."}. The names are
// listed in README.md, and do not change.
struct Finding {
  std::string rule{};
  bool passed = true;
  std::string text{};  // a sentence with the figures, whether it passed or not
  Cause cause = Cause::kOther;
  bool unsure = false;  // of an objective that did not pass: a longer run may show it met
};

struct Verdict {
  std::vector<Finding> validity;    // the run is VALID if all passed
  std::vector<Finding> objectives;  // the objectives are met if all passed

  bool valid() const;
  bool met() const;
};

struct Rules {
  double min_seconds = 10;
  double confidence = 0.99;  // of each finding that is a matter of chance
  // What the client's lag may add to the median and to p99 of latency: the greater of the two.
  double max_lag_share = 0.2;
  double max_lag_ns = 2e6;
  double max_thread_share = 0.9;  // of one core
  double max_drift = 0.1;         // growth over the run, relative to the mean, of queue and latency
};

// Rules: duration, enough-requests, stationary, client-lag, client-cpu, client-dropped, shares,
// counts-agree, verified. Each has one finding, also when there was nothing to check. Objectives
// have one for each of the classes' goals, named "CLASS: p99 <= 50.0 ms" or "CLASS: errors <= 0.1
// %".
Verdict Judge(const RunData& run, const Rules& rules = {});

// "VALID", or "INVALID: client-lag, client-cpu"; "objectives met", "objectives MISSED: 1 of 3", or
// "no objectives".
std::string ValidityText(const Verdict& verdict);
std::string ObjectivesText(const Verdict& verdict);

}  // namespace castor::load

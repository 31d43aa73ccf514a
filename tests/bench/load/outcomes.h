// What became of the calls of a run, and figures made from it.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tests/bench/load/caller.h"

namespace castor::bench {

struct Outcome {
  Clock::time_point intended, sent, ended;
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::string reason;
};

struct Outcomes {
  Clock::time_point begin;
  std::chrono::duration<double> length{0};  // of the schedule
  std::chrono::milliseconds deadline{0};
  std::vector<Outcome> calls;
};

double Milliseconds(Clock::duration duration);

// q of 0 to 1; 0 if there are none.
double Quantile(std::vector<double> values, double q);

// From the intended time, in ms. A call that failed counts as one that took its whole deadline:
// to its caller it was no faster.
std::vector<double> Latencies(const Outcomes& outcomes);

// By how much the generator itself was late, in ms.
std::vector<double> Lags(const Outcomes& outcomes);

// What a caller with a deadline got.
enum class Fate {
  kGood,    // OK in time
  kLate,    // not OK in time, though the server spent half the deadline or more on it
  kRefused  // the others
};
Fate FateOf(const Outcome& call, std::chrono::milliseconds deadline);

struct Tally {
  int64_t good = 0, late = 0;
  std::vector<double> refused_sent_ms;      // refused ones, from when they were sent
  std::vector<double> refused_intended_ms;  // the same, from when they should have been
  double goodput = 0;  // good ones per second, without the first deadline's length and the run-out

  int64_t refused() const { return static_cast<int64_t>(refused_sent_ms.size()); }
};
Tally TallyOf(const Outcomes& outcomes);       // of one run
void Append(const Tally& more, Tally& tally);  // all but goodput

// "OK 120, RESOURCE_EXHAUSTED QUEUE_FULL 3".
using Codes = std::map<std::string, int64_t>;
void Count(grpc::StatusCode code, const std::string& reason, Codes& codes);
Codes CodesOf(const Outcomes& outcomes);
std::string TextOf(const Codes& codes);

// Appends the calls of `more`.
void Append(const Outcomes& more, Outcomes& outcomes);

}  // namespace castor::bench

// The M/D/1 queue: Poisson arrivals, one server that takes the same time for each request. Its
// waiting times are known in closed form, and simulated exactly by Lindley's recursion: a server
// for the search whose answer is known.
#pragma once

#include <cstdint>
#include <functional>
#include <random>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"

namespace castor::load::testing {

// P(waiting time <= t) by Erlang's formula, for service time 1 and utilization `rho`. Accurate
// while t is at most about 20: its terms alternate.
double Md1WaitAtMost(double t, double rho);

// The rate at which quantile `quantile` of the time from arrival to answer is exactly `limit`
// seconds, for a service time of `service` seconds.
double Md1RateFor(double service, double quantile, double limit);

// A run of such a server in virtual time: one class with one latency goal.
class Md1Server {
 public:
  Md1Server(double service, LatencyGoal goal, uint64_t seed)
      : service_(service), goal_(goal), random_(seed) {}

  RunData Run(double rate, std::chrono::nanoseconds duration);

  // Called with each run before it is returned.
  std::function<void(RunData&)> change;
  // Multiplies each service time.
  std::function<double()> slowness = [] { return 1.0; };

 private:
  const double service_;  // seconds
  const LatencyGoal goal_;
  std::mt19937_64 random_;
};

// The objectives as they are, and of the rules of validity only whether there were enough requests:
// ten beyond the quantile.
Verdict JudgeByCounts(const RunData& run);

}  // namespace castor::load::testing

// How far a run's figures would differ if it were run again: they are made anew from seconds drawn
// from it.
//
// Answers within a run depend on each other: what waits behind a slow request is slow as well, and
// a server that is slow for a while is slow for all. So 10^6 answers tell far less than 10^6
// independent ones would, and a test on raw counts finds a difference between any two runs. Here
// whole seconds are drawn, in blocks of consecutive ones (a block bootstrap). What differs from one
// run to the next as such (another process, another neighbour on the machine) no single run shows:
// repeat runs, and compare those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/load/results/run_data.h"

namespace castor::load {

struct Interval {
  double low = 0, high = 0;
};

// How many consecutive seconds are drawn together: grows with the cube root of the run's length.
size_t BlockSeconds(size_t seconds);

// The figures of `resamples` resamples, each by number: the quantiles' latencies in ns (0 when
// there are no answers), the good answers a second, and the share of requests without an OK answer.
// Deterministic: equal arguments give equal figures on every machine. 10^6 answers of 60 s and
// 2,000 resamples take well below a second. REQUIRES: at least one second.
std::vector<std::vector<double>> Resample(const std::vector<Second>& seconds,
                                          const std::vector<double>& quantiles, int resamples,
                                          uint64_t seed);

// The interval about `point` that `resampled` values of it spread over, with the confidence, made
// wider by what few blocks (of both runs together) hide: the sampling of blocks makes spreads too
// small, and Student's distribution is wider than the normal one. REQUIRES: resampled not empty.
Interval SpreadInterval(double point, std::vector<double> resampled, double confidence,
                        double blocks);

// What counts can show with a confidence.

// How sure `requests`, of which `over_limit` were above a limit, make one that the quantile is
// within it, 0..1: the early-stopping rule of MLPerf's LoadGen. It asks how likely so few answers
// above the limit would be, if the share of such answers were just too large. It takes requests as
// independent; those of a server that is slow for a while are not, so a run should be longer than
// the least. REQUIRES: 0 < quantile < 1, 0 <= over_limit <= requests.
double ConfidenceWithin(double quantile, int64_t requests, int64_t over_limit);

// The least number of requests, none of them above the limit, for a run to show with the confidence
// that the quantile is within it: 459 for p99 at a confidence of 0.99. REQUIRES: both are between 0
// and 1.
int64_t RequestsNeeded(double quantile, double confidence);

struct Growth {
  double mean = 0;
  double growth = 0;    // of the fitted line, from the series' begin to its end
  double at_least = 0;  // one-sided bound: the growth is no less, with the confidence asked for
  bool known = false;   // false: the series is too short
};

// Fits a line by least squares to `values`, one a second. Seconds of a run depend on each other (a
// queue that is long now is long a second later), which makes the usual error of a slope far too
// small. So the line goes through the means of 10 to 20 blocks of seconds, which depend on each
// other much less, and the bound is Student's. Fewer than 10 values tell nothing.
Growth GrowthOf(const std::vector<double>& values, double confidence);

}  // namespace castor::load

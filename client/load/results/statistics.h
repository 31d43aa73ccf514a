// Statistics of a run: standard errors, and confidence in percentiles and trends.
//
// Answers within a run depend on each other: a request behind a slow one is slow as well, and a
// server that is slow for a while is slow for every caller. So 10^6 answers tell far less than 10^6
// independent ones would, and a test on raw counts finds a difference between any two runs. The
// statistics here cut a run into 10 to 20 blocks of consecutive seconds, which depend on each other
// much less, and derive errors from how the blocks differ. No single run shows what differs between
// runs as such (another process, another neighbour on the machine): repeat runs and compare those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/load/results/run_data.h"

namespace castor::load {

// The number of blocks that a run is cut into; 0 below 10 s, which tell nothing.
size_t BlocksOf(size_t seconds);

// The figures of `sum`, measured over `seconds`: the quantiles' latencies in ns (0 without
// answers), the good answers a second, and the share of requests without an OK answer.
std::vector<double> FiguresOf(const Second& sum, double seconds,
                              const std::vector<double>& quantiles);

// The standard error of each of a run's figures, by sectioning: each block has figures of its own,
// and these spread about the run's. REQUIRES: BlocksOf(seconds.size()) > 0.
std::vector<double> StandardErrors(const std::vector<Second>& seconds,
                                   const std::vector<double>& quantiles,
                                   const std::vector<double>& figures);

// How many standard errors an interval of this confidence reaches to either side.
double StudentQuantile(double confidence, double degrees);

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

// Fits a line by least squares through the blocks' means of `values`, one a second. A fit through
// single values would have far too small an error: a queue that is long now is long a second later.
Growth GrowthOf(const std::vector<double>& values, double confidence);

}  // namespace castor::load

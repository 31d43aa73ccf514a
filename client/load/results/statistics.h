// What counts can show with a confidence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace castor::load {

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

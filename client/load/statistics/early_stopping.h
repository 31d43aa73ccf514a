// How many requests a run needs before "the p-quantile is within the limit" can be said with a
// confidence: the early-stopping rule of MLPerf's LoadGen. It asks how likely so few answers above
// the limit would be, if the share of such answers were just too large.
#pragma once

#include <cstdint>

namespace castor::load {

// The least number of requests of which `over_limit` may be above the limit, for a run to show that
// the quantile is within it: 459 of which 0 for p99 at a confidence of 0.99. The greatest int64_t
// when no run is that long. REQUIRES: 0 < quantile < 1, over_limit >= 0, 0 < confidence < 1.
int64_t QueriesNeeded(double quantile, int64_t over_limit, double confidence);

// How sure `requests`, of which `over_limit` were above the limit, make one that the quantile is
// within it, 0..1. A goal is met when this is at least the confidence asked for. It takes requests
// as independent; those of a server that is slow for a while are not, so a run should be longer
// than the least. REQUIRES: 0 < quantile < 1, 0 <= over_limit <= requests.
double ConfidenceWithin(double quantile, int64_t requests, int64_t over_limit);

}  // namespace castor::load

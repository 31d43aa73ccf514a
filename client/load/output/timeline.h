// A run over time, thinned to what a chart can show: an hour of seconds becomes a few hundred
// points, and each keeps the greatest of its seconds.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "client/load/measure/run_data.h"

namespace castor::load {

// Some seconds of a run. Latencies are in ns from the intended time, and not numbers where there
// was no OK answer.
struct Moment {
  double middle = 0;                      // seconds since the begin
  double p50 = 0, p99 = 0, max = 0;       // of all answers of these seconds together
  std::array<double, kOutcomes> rates{};  // per second
  double planned = 0;                     // per second
  double in_flight = 0;                   // the most at the end of a second
  double max_lag = 0;                     // ns
};

struct Timeline {
  double step = 1;                                // seconds that a moment spans
  std::vector<std::vector<Moment>> classes = {};  // [class][moment]
  std::vector<Moment> all = {};
};

// At most `most` moments. REQUIRES: most > 0.
Timeline MakeTimeline(const RunData& run, size_t most);

}  // namespace castor::load

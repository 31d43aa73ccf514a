// The charts of the HTML report: figures with inline SVG, which need neither JavaScript nor colour
// to be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/load/measure/run_data.h"
#include "client/load/output/timeline.h"

namespace castor::load {

// Latency by second, from the intended time: for each class a figure with median, p99 and greatest,
// its goals, and below it what got no OK answer. All share both axes. Then the requests per second,
// work in flight and the client's lag, of all classes.
std::string TimelineFigures(const RunData& run);

// Latency by percentile, which a logarithmic axis of 1 / (1 - quantile) spreads: each class from
// the intended time and from sending. Where these part, a load tester that waits for answers would
// have hidden something.
std::string PercentileFigure(const RunData& run);

// Where the mean time went, a bar for each class. Empty where the server told no times.
std::string StageFigure(const RunData& run);

// What report.js shows under the pointer, as JSON that is safe inside a script element.
std::string ChartData(const RunData& run);

// Used by comparisons too. A legend's entry: a line as it is drawn, and a name. With `toggles` it
// becomes a button that hides the groups of that class.
std::string LegendEntry(const std::string& classes, const std::string& name,
                        const std::string& toggles = "");
// A curve of latency by percentile, even on an axis of odds = 1 / (1 - quantile). It ends with the
// greatest value, at odds of the count: rarer than one of all cannot be told.
struct PercentilePoint {
  double odds = 1;
  int64_t value = 0;  // ns
};
// `most` + 1 points; none of an empty histogram.
std::vector<PercentilePoint> CurveOf(const Histogram& histogram, size_t most);

}  // namespace castor::load

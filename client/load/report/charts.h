// The report's charts, as SVG without colours: their elements have classes, and report.css says how
// they look in light, in dark and in print.
#pragma once

#include <string>

#include "client/load/results/run_data.h"

namespace castor::load {

// Percentiles of a class's latency by time.
std::string TimelineChart(const RunData& run, size_t cls);

// Answers and errors a second by time, of all classes.
std::string RateChart(const RunData& run);

// Latency by percentile, from the intended time and from sending, of all classes.
std::string PercentileChart(const RunData& run);

}  // namespace castor::load

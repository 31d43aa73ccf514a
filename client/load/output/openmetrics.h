// A run as an OpenMetrics text file (version 1.0.0), for a textfile collector or promtool.
#pragma once

#include <string>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"

namespace castor::load {

// Series are named castor_load_*, with labels class and endpoint. Times are in seconds; histograms
// have the same buckets in every run, so that runs can be compared and added up.
std::string OpenMetricsText(const RunData& run, const Verdict& verdict);

}  // namespace castor::load

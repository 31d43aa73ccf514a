// A run as one HTML file that needs nothing else: no network, no JavaScript, no fonts.
#pragma once

#include <string>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"
#include "client/load/output/compare_view.h"

namespace castor::load {

// The report. Names and messages in it are escaped, whatever they contain, and tokens of the
// workload are replaced. Below 2 MB for an hour of four classes.
std::string ReportHtml(const RunData& run, const Verdict& verdict);

// Two runs beside each other: what changed, by class, and both runs' curves.
std::string CompareHtml(const RunData& a, const RunData& b, const CompareView& view);

}  // namespace castor::load

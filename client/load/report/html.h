// A run as one HTML file that needs nothing else: no network, no JavaScript, no fonts.
#pragma once

#include <string>

#include "client/load/results/run_data.h"
#include "client/load/results/verdict.h"

namespace castor::load {

// Names and messages in it are escaped, whatever they contain. Below 1 MB for an hour of four
// classes.
std::string ReportHtml(const RunData& run, const Verdict& verdict);

}  // namespace castor::load

// A run as text for a terminal.
#pragma once

#include <string>

#include "client/load/results/run_data.h"
#include "client/load/results/verdict.h"

namespace castor::load {

// Names and messages in it are cleaned, whoever chose them.
std::string SummaryText(const RunData& run, const Verdict& verdict);

// For all reports: "12.3%", "-" of nothing. What is not all never reads 100%, and what is not none
// never 0%.
std::string PercentText(double part, double whole);
// "open loop, 200 requests/s", "closed loop".
std::string LoopText(const RunData& run);

}  // namespace castor::load

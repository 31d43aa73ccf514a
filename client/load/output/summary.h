// The summary that castor-load prints when a run is over: the verdict first, then tables.
#pragma once

#include <string>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"

namespace castor::load {

// Plain text with a newline at its end, for standard output. Its first line begins with VALID or
// INVALID.
std::string SummaryText(const RunData& run, const Verdict& verdict);

}  // namespace castor::load

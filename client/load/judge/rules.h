// The rules of verdict.h, one function each.
#pragma once

#include <string>
#include <vector>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"

namespace castor::load {

// Of the run: long enough, enough requests, and no different at its end than at its begin.
Finding CheckDuration(const RunData& run, const Rules& rules);
Finding CheckEarlyStopping(const RunData& run, const Rules& rules);
Finding CheckStationary(const RunData& run, const Rules& rules);

// Of the client: it was not the limit.
Finding CheckClientLag(const RunData& run, const Rules& rules);
Finding CheckClientCpu(const RunData& run, const Rules& rules);
Finding CheckClientDropped(const RunData& run, const Rules& rules);

// Of the answers: none is missing, counted twice, or wrong.
Finding CheckAllAnswered(const RunData& run);
Finding CheckCountsAgree(const RunData& run);
Finding CheckVerified(const RunData& run);

// One for each goal of the class.
std::vector<Finding> CheckObjective(const RunData& run, size_t cls, const Rules& rules);

// For findings' texts: "3.10 ms", "12.5 %".
std::string FoundTime(double ns);
std::string FoundShare(double share);

}  // namespace castor::load

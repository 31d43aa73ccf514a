// A run as CSV (RFC 4180): a row for each class at each endpoint.
#pragma once

#include <string>

#include "client/load/measure/run_data.h"

namespace castor::load {

// The first columns are those that perf_analyzer's --filename writes (and --verbose-csv's "Avg
// latency"), by name, order and meaning, so that what reads its files reads these: its latencies
// count from sending, its times are whole microseconds, and rows are in order of Inferences/Second.
// The first column is "Request Rate", or "Concurrency" for a closed loop, as the mean that was in
// flight. An inference is one sequence. "Client Send" and "Client Recv" are 0: payloads are
// serialised before the run, and the rest is part of "Network+Server Send/Recv". Server columns are
// empty where the server told no times.
//
// Columns of castor-load follow, with units in their names. "intended" latencies are the headline.
// A name that a spreadsheet would take for a formula gets an apostrophe in front.
std::string CsvText(const RunData& run);

}  // namespace castor::load

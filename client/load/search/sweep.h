// The grid of rates, kernels, lengths and other parameters: which cells a workload gives, in which
// order they run, and when raising the load makes no more sense.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/load/results/run_data.h"
#include "client/load/results/verdict.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// A parameter and its values, as they were written.
struct Vary {
  std::string name;
  std::vector<std::string> values;
};

// Reads "rate=50,100,200". Throws std::invalid_argument, which names what is wrong.
Vary ParseVary(const std::string& text);

// Sets one parameter: `rate` of an open loop, `callers` of a closed one, and of all classes that
// have them `length`, `sequences`, `heads`, `head-dim`, and the kernel's flags without dashes
// (`kernel`, `clusters`, ...). Throws std::invalid_argument when the workload has no such
// parameter, or the value is none of its own.
void SetParameter(const std::string& name, const std::string& value, Workload* workload);

enum class CellState { kPending, kDone, kSkipped, kInvalid };

struct SweepCell {
  std::vector<std::pair<std::string, std::string>> series;  // all but what raises the load
  std::string load;  // the value of `rate` or `callers`; empty if neither is varied
  CellState state = CellState::kPending;
  std::string why;                 // it was skipped, or is invalid
  nlohmann::ordered_json summary;  // SummaryOf the run (run_json.h)
};

// All combinations, by series and each in rising order of load. Throws std::invalid_argument when a
// parameter is varied twice, both `rate` and `callers` are, there are more than 1,000 cells, or
// SetParameter() would.
std::vector<SweepCell> MakeSweep(const Workload& workload, const std::vector<Vary>& vary);

// Runs the cells, and tells `on_cell` of each. A cell whose run is INVALID because of the client is
// run again, once. A series ends when its load saturates the server: it answers less than 90 % of
// what it was sent, or goodput falls by 10 %. Returns false when it was stopped.
bool RunSweep(const Workload& workload, const std::function<RunData(const Workload&)>& run,
              const std::function<Verdict(const RunData&)>& judge, std::vector<SweepCell>* cells,
              const std::function<void(const SweepCell&)>& on_cell, const std::atomic<bool>& stop);

}  // namespace castor::load

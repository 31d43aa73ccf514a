// The grid of rates, kernels, lengths and other parameters: which cells a workload gives, in which
// order they run, and when raising the load makes no more sense.
#pragma once

#include <toml++/toml.h>

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

enum class CellState { kPending, kDone, kSkipped, kInvalid };

struct SweepCell {
  std::vector<std::pair<std::string, std::string>> series;  // all but what raises the load
  std::string load;  // the value of `rate` or `callers`; empty if neither is varied
  Workload workload{};
  CellState state = CellState::kPending;
  std::string why;         // it was skipped, or is invalid
  nlohmann::json summary;  // SummaryOf the run (run_json.h)
};

using ReadWorkload = std::function<Workload(const toml::table&)>;

// All combinations of `vary`, each "rate=50,100,200", over a workload: by series, and each in
// rising order of load. `rate` and `callers` are keys of [load]; `length`, `sequences`, `heads` and
// `head-dim` those of all classes that have them; `kernel` and any other name are the kernels and
// their parameters. Throws cli::UsageError when a parameter is varied twice, both `rate` and
// `callers` are, there are more than 1,000 cells, or `read` refuses one of them.
std::vector<SweepCell> MakeSweep(const toml::table& workload, const std::vector<std::string>& vary,
                                 const ReadWorkload& read);

// Runs the cells, and tells `on_cell` of each. A cell whose run is INVALID because of the client is
// run again, once. A series ends when its load saturates the server: it answers less than 90 % of
// what it was sent, or goodput falls by 10 %. Returns false when it was stopped.
bool RunSweep(const std::function<RunData(const Workload&)>& run,
              const std::function<Verdict(const RunData&)>& judge, std::vector<SweepCell>* cells,
              const std::function<void(const SweepCell&)>& on_cell, const std::atomic<bool>& stop);

}  // namespace castor::load

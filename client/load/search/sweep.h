// The grid of rates, kernels, lengths and other parameters: which cells a workload gives, in which
// order they run, when raising the rate makes no more sense, and what is kept of each. Saved after
// every cell, so that an interrupted sweep goes on where it was.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/load/measure/run_data.h"
#include "client/load/search/find_rate.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// A parameter and its values, as they were written.
struct Vary {
  std::string name;
  std::vector<std::string> values;
};

// Reads "rate=50,100,200". Throws std::invalid_argument, which names what is wrong and lists the
// parameters that there are.
Vary ParseVary(const std::string& text);

// The parameters that can be varied, with what their values are: for --help.
std::string VaryHelp();

// Sets one parameter: `rate` of an open loop, `callers` of a closed loop, and of all classes that
// have them `kernel`, `length`, `sequences`, `heads`, `head_dim`, `clusters`, `topk`. Throws
// std::invalid_argument when the workload has no such parameter, or the value is none of its own.
void SetParameter(const std::string& name, const std::string& value, Workload* workload);

using Labels = std::vector<std::pair<std::string, std::string>>;  // name, value

enum class CellState {
  kPending,
  kDone,
  kSkipped,
  kInvalid,  // it was run twice, and says nothing about the server
};

struct SweepCell {
  Labels series;     // all varied parameters but the one that raises the load
  std::string load;  // the value of `rate` or `callers`; empty if neither is varied
  CellState state = CellState::kPending;
  std::string why;             // it was skipped or is invalid
  nlohmann::ordered_json run;  // RunData as JSON, without its seconds; null unless kDone
};

struct Sweep {
  std::string workload_toml;  // before any parameter was set; tokens replaced
  std::vector<Vary> vary;
  std::vector<SweepCell> cells;  // by series, each in rising order of load
};

// All combinations. Throws std::invalid_argument when a parameter is varied twice, both `rate` and
// `callers` are, there are more than 10,000 cells, or SetParameter() would.
Sweep MakeSweep(const Workload& workload, const std::string& workload_toml,
                const std::vector<Vary>& vary);

// The workload of a cell.
Workload WorkloadOf(const Workload& workload, const SweepCell& cell);

// One cell's figures, for curves.
struct CurvePoint {
  double rate = 0;         // asked for; what was sent in a closed loop
  double throughput = 0;   // OK answers/s
  double goodput = 0;      // good answers/s
  double cancelled = 0;    // by this client, as planned, per second
  double error_share = 0;  // of all others
  int64_t p50_ns = 0, p90_ns = 0, p99_ns = 0, p999_ns = 0;  // of OK answers, from intended time
  double worst_goal = 0;                                    // Evidence::Worst(): 1 is the edge
};
CurvePoint PointOf(const RunData& run);

// The latency-throughput curve of each series, in the sweep's order; cells that were run.
struct Curve {
  Labels series;
  std::vector<CurvePoint> points;
};
std::vector<Curve> CurvesOf(const Sweep& sweep);

// Why a higher rate of this series would only waste time, given its points so far, the last of
// which ran last; empty while it would not. A server is saturated when it answers less than 90 % of
// what it was sent, when goodput is 10 % lower than at a lower rate, or when five times as many
// requests miss a goal as may, and more than 5 % of all do.
std::string Saturation(const std::vector<CurvePoint>& points);

nlohmann::ordered_json ToJson(const Sweep& sweep);
// Throws std::runtime_error that names the field.
Sweep SweepFromJson(const nlohmann::ordered_json& json);

// Throw std::runtime_error that names the file. A file is replaced in one step: whatever happens,
// there is the old one or the new one.
void SaveSweep(const Sweep& sweep, const std::string& path);
Sweep LoadSweep(const std::string& path);

// Makes a cell's run.
using RunCell = std::function<RunData(const Workload&, const SweepCell&)>;
// Called when a cell has been run or skipped.
using OnCell = std::function<void(const Sweep&, const SweepCell&)>;

// Runs the pending cells, and saves the sweep after each to `path`, unless that is empty. Returns
// true when no cell is pending any more, false when it was stopped. A run that was stopped
// meanwhile is not kept. What `run` throws ends the sweep; what was saved stays.
//
// A cell whose run has a ClientsFault() is run again; if that has one too, the cell is invalid. A
// series ends after two such cells: a higher rate would be no better.
bool RunSweep(const Workload& workload, const RunCell& run, const JudgeRun& judge,
              const std::string& path, Sweep* sweep, const OnCell& on_cell,
              const std::atomic<bool>& stop);

// The findings that make a run say nothing about the server, as one text: all of validity's but
// those that a run is short or that the server was overloaded. Empty when there are none.
std::string ClientsFault(const Verdict& verdict);

// For --resume: the saved sweep of the same workload and grid. Throws std::runtime_error when it is
// of another.
Sweep ResumeSweep(const std::string& path, const Sweep& wanted);

}  // namespace castor::load

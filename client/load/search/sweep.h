// The grid of rates, kernels, lengths and other parameters that `castor-load sweep` runs.
#pragma once

#include <toml++/toml.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/load/results/verdict.h"
#include "client/load/workload/workload.h"

namespace castor::load {

struct SweepCell {
  std::vector<std::pair<std::string, std::string>> parameters;  // name and value, as written
  Workload workload{};
  nlohmann::json summary{};  // SummaryOf the run (run_json.h); null until the cell has run
  std::string fault{};       // why the run is INVALID, if it says nothing about the server
};

using ReadWorkload = std::function<Workload(const toml::table&)>;

// All combinations of `vary`, each "rate=50,100,200", over a workload; the last parameter varies
// fastest. `rate` and `callers` are keys of [load]; `length`, `sequences`, `heads` and `head-dim`
// those of all classes that have them; `kernel` and any other name are the kernels and their
// parameters. Throws cli::UsageError when a parameter is varied twice, there are more than 1,000
// cells, or `read` refuses one of them.
std::vector<SweepCell> MakeSweep(const toml::table& workload, const std::vector<std::string>& vary,
                                 const ReadWorkload& read);

// The broken rules that make a cell worthless; "" if there are none. A short run, or an overloaded
// server, still gives figures.
std::string ClientFault(const Verdict& verdict);

}  // namespace castor::load

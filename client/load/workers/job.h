// What a worker is told to do, and the seam between the machinery of workers and what makes a run.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/load/drive/progress.h"
#include "client/load/measure/run_data.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// The share of one worker in a run.
struct Job {
  std::string workload_toml{};
  uint64_t seed = 1;
  std::vector<std::string> endpoints{};
  uint32_t index = 0, workers = 1;           // this one, of so many
  std::map<std::string, std::string> flags;  // of the run, by name, as they were given
};

// Makes the run, beginning at `begin`, and returns what it measured. Ends early when `stop` is
// set, and then returns what it has. Throws std::exception when it cannot.
using RunJob = std::function<RunData(std::chrono::steady_clock::time_point begin,
                                     const OnProgress& on_progress, const std::atomic<bool>& stop)>;

// Builds payloads, connects, and returns what runs the job. Throws std::exception when it cannot.
using PrepareJob = std::function<RunJob(const Job& job)>;

// The workload as one worker runs it: a cap on requests in flight is divided among the workers, so
// that shares differ by at most one. All else is the same: the driver divides the schedule and the
// callers. Throws std::invalid_argument when the cap is lower than the number of workers.
Workload ShareOf(const Workload& workload, uint32_t index, uint32_t workers);

}  // namespace castor::load

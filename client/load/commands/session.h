// What makes runs: this process, or workers of its own or elsewhere.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/load/commands/traffic_flags.h"
#include "client/load/drive/driver.h"
#include "client/load/judge/verdict.h"
#include "client/load/output/terminal.h"
#include "client/load/workers/coordinator.h"
#include "client/load/workers/local_workers.h"

namespace castor::load {

struct WorkerFlags {
  int processes = 0;                // on this machine; 0: this process sends
  std::vector<std::string> remote;  // addresses of castor-load worker
  std::string token_file;           // that they ask for
};

void AddWorkerFlags(CLI::App* command, WorkerFlags* flags);

// One run after another over the same classes and servers. For one thread.
class Session {
 public:
  // Builds the requests and connects, or starts the workers. Throws what MakeWorkload, Driver and
  // LocalWorkers throw.
  Session(const TrafficFlags& flags, Workload workload, const WorkerFlags& workers, bool quiet);

  const Workload& workload() const { return workload_; }

  // A run, with its live view. Ends early when StopRequested().
  RunData Run(const decltype(Workload::load)& load, std::chrono::nanoseconds duration,
              std::chrono::nanoseconds warm_up, uint64_t seed);
  RunData Run() {
    return Run(workload_.load, workload_.duration, workload_.warm_up, workload_.seed);
  }

  // By the flags' rules, and what the last Run found wrong with workers.
  Verdict Judge(const RunData& run) const;

 private:
  RunData RunOnAllWorkers(const Workload& workload, const OnProgress& on_progress);

  const TrafficFlags flags_;
  const Workload workload_;
  std::optional<LiveView> view_;
  std::unique_ptr<Driver> driver_;  // null: workers send
  std::unique_ptr<LocalWorkers> local_;
  std::vector<WorkerAddress> workers_;
  std::optional<Finding> workers_finding_;  // of the last run
};

// What a worker does with a job: the other end of RunOnAllWorkers. Certificates and tokens are the
// worker's own; none travels.
RunJob PrepareOnWorker(const Job& job, const cli::SecurityFlags& security);

}  // namespace castor::load

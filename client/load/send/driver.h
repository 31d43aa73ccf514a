// Carries out runs of a workload.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/load/results/run_data.h"
#include "client/load/send/lane.h"
#include "client/load/send/messages.h"
#include "client/load/workload/workload.h"

namespace castor::load {

struct DriveOptions {
  std::vector<std::string> endpoints{};  // gRPC targets; requests take them in turn
  // By endpoint, HOST:PORT or a URL; empty: the address that the server reports.
  std::vector<std::string> metrics{};
  bool ask_metrics = true;
  int lanes = 1;              // each sends on a thread of its own
  int connections = 8;        // of each lane to each endpoint
  double verify_share = 0;    // of the requests, 0..1
  std::string request_log{};  // file; empty: none
  int64_t share = 0,
          shares = 1;  // this process sends every `shares`-th request, from number `share`
  // When the run begins, after its warm-up; nullopt: at once.
  std::optional<std::chrono::system_clock::time_point> begin{};
  client::ClientOptions client{};  // TLS and the token for all endpoints; its target is not used
};

// A run's progress, reported about once a second.
struct Progress {
  const char* phase = "";                         // "warming up", "running", "waiting"
  double elapsed_seconds = 0, total_seconds = 0;  // of the phase
  Second last{};                                  // what ended in the last second, all classes
  int64_t in_flight = 0;
  double cpu_share = 0;  // of one core, by all threads of this process
};
// Called by one thread at a time, never by one that sends.
using OnProgress = std::function<void(const Progress&)>;

class Driver {
 public:
  Driver(Workload workload, DriveOptions options);

  // Builds the payloads, asks each server for its version, and sends each class's first payload
  // alone, or all payloads if answers are to be verified. Throws cli::UsageError or ServerError.
  void Prepare();

  // Sends the workload under `load`, and blocks until the last answer. Call it after Prepare.
  // Another thread may set `stop`, which cancels the requests in flight and ends the run.
  RunData Run(const Load& load, std::chrono::nanoseconds duration, std::chrono::nanoseconds warm_up,
              uint64_t seed, const OnProgress& on_progress, const std::atomic<bool>& stop);

  // Sends the workload under its own load.
  RunData Run(const OnProgress& on_progress, const std::atomic<bool>& stop) {
    return Run(workload_.load, workload_.duration, workload_.warm_up, workload_.seed, on_progress,
               stop);
  }

  const Workload& workload() const { return workload_; }

 private:
  void CheckSecurity();
  void QueryServer(const std::string& endpoint);
  void SendAlone();
  RunData MakeRunData(const Workload& workload) const;

  const Workload workload_;
  const DriveOptions options_;
  Traffic traffic_;
  std::unique_ptr<References> references_;  // null: nothing is verified
  std::string server_version_, server_setting_;
  std::vector<std::string> metrics_;  // by endpoint; "": unknown
};

}  // namespace castor::load

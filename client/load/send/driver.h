// Carries out a run: from a workload to what was measured.
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
#include "client/load/send/answers.h"
#include "client/load/send/lane.h"
#include "client/load/workload/workload.h"

namespace castor::load {

struct DriveOptions {
  std::vector<std::string> endpoints{};  // gRPC targets; requests take them in turn
  // By endpoint, HOST:PORT or a URL; empty: where each server says that its metrics are.
  std::vector<std::string> metrics{};
  bool ask_metrics = true;
  int lanes = 1;                  // each sends on a thread of its own
  int connections = 8;            // of each lane to each endpoint
  double verify_share = 0;        // of the requests, 0..1
  std::string request_log{};      // file; empty: none
  int64_t share = 0, shares = 1;  // this process sends every `shares`-th request, from `share` on
  // When the run begins, its warm-up before it; nullopt: as soon as can be.
  std::optional<std::chrono::system_clock::time_point> begin{};
  client::ClientOptions client{};  // TLS and the token for all endpoints; its target is not used
};

// What a run tells whoever watches it, about once a second.
struct Progress {
  const char* phase = "";                         // "warming up", "running", "waiting"
  double elapsed_seconds = 0, total_seconds = 0;  // of the phase
  Second last{};                                  // of all classes: what ended in the last second
  int64_t in_flight = 0;
  double cpu_share = 0;  // of one core, by all threads of this process
};
// Called on one thread at a time, never on one that sends.
using OnProgress = std::function<void(const Progress&)>;

class Driver {
 public:
  Driver(Workload workload, DriveOptions options);

  // Builds the payloads, asks each server who it is, and sends each class's first payload alone;
  // all of them if some answers are to be verified. Throws cli::UsageError or ServerError that says
  // what is wrong.
  void Prepare();

  // After Prepare: the workload under `load`. Blocks until the last answer. Another thread may set
  // `stop` to end it early: what is in flight is cancelled then.
  RunData Run(const Load& load, std::chrono::nanoseconds duration, std::chrono::nanoseconds warm_up,
              uint64_t seed, const OnProgress& on_progress, const std::atomic<bool>& stop);

  // Under the workload's own load.
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
  std::vector<std::string> metrics_;  // by endpoint; "": nowhere
};

}  // namespace castor::load

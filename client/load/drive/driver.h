// Carries out a run: from a workload to what was measured.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/load/drive/progress.h"
#include "client/load/drive/traffic.h"
#include "client/load/measure/run_data.h"
#include "client/load/verify/references.h"
#include "client/load/workload/workload.h"

namespace castor::load {

struct DriveOptions {
  std::vector<std::string> endpoints{};  // gRPC targets; requests take them in turn
  std::vector<std::string> metrics{};    // by endpoint, HOST:PORT; empty: the servers are not asked
  int lanes = 1;                         // each sends on a thread of its own
  int connections = 8;                   // of each lane to each endpoint
  double verify_share = 0;               // of the requests, 0..1
  std::string request_log{};             // file; empty: none
  size_t worker = 0, workers = 1;        // this process sends every `workers`-th request
  // Counts the requests sent alone among the server's calls: whoever reads its metrics has read
  // them before Prepare.
  bool count_alone = false;
  client::ClientOptions client{};  // TLS and the token for all endpoints; its target is not used
};

class Driver {
 public:
  Driver(Workload workload, DriveOptions options);
  ~Driver();

  // Builds the payloads. Throws cli::UsageError that says what is wrong.
  void BuildPayloads();

  // After it, or by itself: connects, sends each class's first payload alone, and all of them if
  // some are to be verified. Throws cli::UsageError or ServerError that says what is wrong.
  void Prepare();

  // After Prepare: the workload under `load`, from `begin` on (the warm-up lies before it; nullopt:
  // as soon as can be). Blocks until the last answer. Another thread may set `stop` to end it
  // early: what is in flight is cancelled then.
  RunData Run(const decltype(Workload::load)& load, std::chrono::nanoseconds duration,
              std::chrono::nanoseconds warm_up, uint64_t seed, const OnProgress& on_progress,
              const std::atomic<bool>& stop, std::optional<Clock::time_point> begin = std::nullopt);

  // Under the workload's own load.
  RunData Run(const OnProgress& on_progress, const std::atomic<bool>& stop,
              std::optional<Clock::time_point> begin = std::nullopt);

  const Workload& workload() const { return workload_; }

  // What a client like this one can send, in requests per second: set by calibrate.h.
  void set_calibrated_rate(double rate) { calibrated_rate_ = rate; }
  const Traffic& traffic() const { return traffic_; }

 private:
  class Lanes;

  void CheckSecurity() const;
  // Its version, "" if it does not say. Throws if it cannot be called.
  std::string VersionOf(const std::string& endpoint) const;
  void SendAlone(grpc::Channel& channel);
  RunData Empty(const Workload& workload) const;

  Workload workload_;
  const DriveOptions options_;
  std::unique_ptr<CurrentToken> token_;
  std::unique_ptr<Protocol> protocol_;
  std::unique_ptr<References> references_;
  Traffic traffic_;
  std::string server_version_{};
  int64_t sent_alone_ = 0;
  double calibrated_rate_ = 0;
};

}  // namespace castor::load

// The castor-server under test: a child process, watched from outside.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/metrics/fetch.h"

namespace castor::bench {

// Processor time of the threads that run now, and of all that ever ran.
struct CpuTimes {
  std::chrono::nanoseconds all{0};
  std::map<int, std::chrono::nanoseconds> own{};  // by id; the others are gRPC's, named by it
};

class ServerProcess {
 public:
  // Starts `program` on a free port with these further flags, on the processor `cpu` alone unless
  // that is negative, and waits until it serves. Ends this program if it does not.
  ServerProcess(const std::string& program, const std::vector<std::string>& flags, int cpu = -1);
  // Kills it if it still runs. The kernel does so when this program ends by any other way.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& address() const { return address_; }
  // Empty if it does not come.
  client::MetricsPage Metrics() const {
    return client::FetchMetrics("127.0.0.1:" + std::to_string(metrics_port_));
  }

  // Processor time so far.
  std::chrono::nanoseconds CpuTime() const;
  CpuTimes CpuTimesByThread() const;
  // What it holds of memory.
  int64_t ResidentBytes() const;

  // Asks it to drain and end.
  void Terminate();
  // The exit code; nullopt if a signal ended it, or if it still runs after `patience`.
  std::optional<int> Wait(std::chrono::seconds patience);

 private:
  void ReadLog(int pipe);

  pid_t pid_ = -1;
  bool running_ = false;
  std::string address_;
  int metrics_port_ = 0;
  std::thread log_reader_;  // a full pipe would stop the server
};

}  // namespace castor::bench

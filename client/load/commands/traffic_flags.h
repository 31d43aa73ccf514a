// The flags that say what is sent, where to and when: of run, find-rate, sweep and calibrate.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/kernel_flags.h"
#include "client/cli/security_flags.h"
#include "client/load/drive/driver.h"
#include "client/load/judge/verdict.h"
#include "client/load/workload/workload.h"

namespace castor::load {

struct TrafficFlags {
  // What: a file, or one class from these flags.
  std::string workload;        // TOML
  std::string attend, encode;  // lengths: "128", "1-512"
  int64_t heads = 8, head_dim = 64;
  std::string dtype = "float32", inputs = "gaussian";
  int64_t sequences = 1;
  std::string model, text_file;
  cli::KernelFlags kernel;
  std::string deadline, tenant, priority, cancel_after;
  double cancel_share = 0;
  int64_t payloads = 0;
  bool shared_memory = false;
  std::vector<std::string> objectives;

  // When; what is empty or zero is left to the file, or to its defaults.
  std::string arrivals;
  double rate = 0, burstiness = 0;
  int64_t callers = 0, max_in_flight = -1;
  std::string think_time, duration, warm_up;
  std::string replay;
  double speed = 1;
  std::optional<uint64_t> seed;

  // Where to, and how.
  std::vector<std::string> servers = {"127.0.0.1:50051"};
  cli::SecurityFlags security{};
  std::vector<std::string> metrics;
  bool ask_metrics = true;
  int threads = 1, connections = 8;
  std::string verify;
  std::string request_log;

  // Whether to believe it.
  std::string min_duration;

  // Throw cli::UsageError that names the flag or the file.
  Workload MakeWorkload() const;
  DriveOptions MakeDriveOptions() const;
  Rules MakeRules() const;
};

// `searching`: the command chooses the rate itself.
void AddTrafficFlags(CLI::App* command, TrafficFlags* flags, bool searching);

}  // namespace castor::load

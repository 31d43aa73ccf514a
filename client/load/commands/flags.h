// The flags that say what is sent, where to and when, and where results go: of run, find-rate and
// sweep.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/security_flags.h"
#include "client/load/results/verdict.h"
#include "client/load/send/driver.h"
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
  std::string kernel;
  std::string deadline, tenant, priority;
  int64_t payloads = 0;
  std::vector<std::string> objectives;

  // When; what is empty or zero is left to the file, or to its defaults.
  std::string arrivals;
  double rate = 0;
  int64_t callers = 0, max_in_flight = -1;
  std::string think_time, duration, warm_up;
  std::optional<uint64_t> seed;
  std::string share;
  int64_t begin_at = 0;  // Unix seconds; 0: as soon as can be

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
  std::string WorkloadText() const;  // of the file; "": flags
};

// `searching`: the command chooses the rate itself.
void AddTrafficFlags(CLI::App* command, TrafficFlags* flags, bool searching);

struct OutputFlags {
  std::string json, html;  // empty: not written

  // Throws std::runtime_error that names a file that cannot be written.
  void Write(const RunData& run, const Verdict& verdict) const;
};
void AddOutputFlags(CLI::App* command, OutputFlags* flags);

// A duration above 0. Throws cli::UsageError that names the flag.
std::chrono::nanoseconds PositiveTime(const std::string& flag, const std::string& text);

}  // namespace castor::load

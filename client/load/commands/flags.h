// The flags that say what is sent, where to and when, and where results go: of run, find-rate and
// sweep.
#pragma once

#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/security_flags.h"
#include "client/load/results/verdict.h"
#include "client/load/send/driver.h"
#include "client/load/workload/workload.h"

namespace castor::load {

struct TrafficFlags {
  // The workload as TOML, which checks it: what the flags say of its one class, unless there is a
  // file, of [load] and of [run].
  std::string file;
  toml::table one_class{}, load{}, run{};
  std::string kernel;
  std::vector<std::string> objectives;

  // Where to, and how; without what has a flag below.
  DriveOptions drive{.endpoints = {"127.0.0.1:50051"}};
  std::string share, verify;
  int64_t begin_at = 0;  // Unix seconds; 0: as soon as can be
  cli::SecurityFlags security{};
  Rules rules{};  // whether to believe it

  // All throw cli::UsageError that names the flag, or the file and its key.
  toml::table Toml() const;
  Workload Read(const toml::table& toml) const;  // with the flags' objectives
  Workload MakeWorkload() const { return Read(Toml()); }
  DriveOptions MakeDriveOptions() const;
  std::string WorkloadText() const;  // of the file, or what the flags say in its place
};

// `searching`: the command chooses the rate itself.
void AddTrafficFlags(CLI::App* command, TrafficFlags* flags, bool searching);

struct OutputFlags {
  std::string json, html;  // empty: not written

  // Throws std::runtime_error that names a file that cannot be written.
  void Write(const RunData& run, const Verdict& verdict) const;
};
void AddOutputFlags(CLI::App* command, OutputFlags* flags);

}  // namespace castor::load

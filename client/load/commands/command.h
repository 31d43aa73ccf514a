// Shared by the subcommands of `castor-load`: exit codes, and the flags of run, find-rate and
// sweep, which say what is sent, when and where to, and where results go.
#pragma once

#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/security_flags.h"
#include "client/cli/subcommands.h"
#include "client/load/results/verdict.h"
#include "client/load/send/driver.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// Exit codes of the program, for use in CI, in addition to cli/command.h's 1 and 2.
inline constexpr int kMet = 0;            // VALID, and every objective met
inline constexpr int kMissed = 3;         // VALID, and an objective is missed
inline constexpr int kInvalid = 4;        // INVALID, or too short to tell
inline constexpr int kRegression = 5;     // compare: a --fail-on holds
inline constexpr int kInterrupted = 130;  // Ctrl-C; the measurements until then are written

// The subcommands.
using cli::Runner;
Runner AddRunCommand(CLI::App* command);
Runner AddFindRateCommand(CLI::App* command);
Runner AddSweepCommand(CLI::App* command);
Runner AddCompareCommand(CLI::App* command);
Runner AddReportCommand(CLI::App* command);
Runner AddExampleCommand(CLI::App* command);

struct TrafficFlags {
  // The workload as TOML, whose parser checks it: a file, or the one class of the flags; and the
  // flags of [load] and [run].
  std::string file;
  toml::table one_class{}, load{}, run{};
  std::string kernel;
  std::vector<std::string> objectives;

  // Servers and connections; the fields below complete it.
  DriveOptions drive{.endpoints = {"127.0.0.1:50051"}};
  std::string share, verify;
  int64_t begin_at = 0;  // Unix seconds; 0: at once
  cli::SecurityFlags security{};
  Rules rules{};  // of validity

  // All throw cli::UsageError that names the flag, or the file and its key.
  toml::table Toml() const;
  Workload Read(const toml::table& toml) const;  // with the flags' objectives
  Workload MakeWorkload() const { return Read(Toml()); }
  DriveOptions MakeDriveOptions() const;
  std::string WorkloadText() const;  // of the file or the flags
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

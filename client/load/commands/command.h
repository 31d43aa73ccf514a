// Shared by the subcommands of `castor-load`.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>

#include "client/cli/subcommands.h"

namespace castor::load {

// Exit codes of the program, for use in CI. The first ones equal those of cli/command.h.
inline constexpr int kMet = 0;            // VALID, and every objective met
inline constexpr int kServerError = 1;    // the server, or the connection to it
inline constexpr int kUsageError = 2;     // local: flags, files, memory
inline constexpr int kMissed = 3;         // VALID, and an objective is missed
inline constexpr int kInvalid = 4;        // INVALID, or too short to tell
inline constexpr int kRegression = 5;     // compare: a --fail-on holds
inline constexpr int kInterrupted = 130;  // Ctrl-C; the measurements until then are written

// Set by Ctrl-C and SIGTERM. A second one ends the program at once.
const std::atomic<bool>& StopRequested();
void WatchForStop();

// The subcommands.
using cli::Runner;
Runner AddRunCommand(CLI::App* command);
Runner AddFindRateCommand(CLI::App* command);
Runner AddSweepCommand(CLI::App* command);
Runner AddCompareCommand(CLI::App* command);
Runner AddReportCommand(CLI::App* command);
Runner AddExampleCommand(CLI::App* command);

// The whole command: parses the arguments, runs what they say, and returns the exit code.
int Run(int argc, char** argv);

}  // namespace castor::load

// Shared by the subcommands of `castor-load`.
#pragma once

#include <CLI/CLI.hpp>

#include "client/cli/subcommands.h"

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

}  // namespace castor::load

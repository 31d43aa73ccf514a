// What to say of arguments that CLI11 could not make sense of, for castor and castor-load.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace castor::cli {

// The candidate that `typed` was probably meant to be; empty if none is near.
std::string NearestOf(const std::string& typed, const std::vector<std::string>& candidates);

// The line for an error that app.parse(argc, argv) threw: what is wrong, the nearest subcommand or
// flag where one was mistyped, and where the help is.
std::string ExplainParseError(const CLI::App& app, const CLI::Error& error, int argc,
                              const char* const* argv);

}  // namespace castor::cli

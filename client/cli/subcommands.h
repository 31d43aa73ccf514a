// A program of subcommands, as castor and castor-load are: declares them, parses the arguments, and
// says what is wrong with those that cannot be understood.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace castor::cli {

using Runner = std::function<int()>;

struct Subcommand {
  const char* name;
  const char* help;
  // Declares its flags; the result runs it after parsing, and returns the exit code.
  Runner (*declare)(CLI::App* command);
};

// An error that is not of the arguments as such: printed, and the exit code.
class Failure : public CLI::Error {
 public:
  Failure(const std::string& message, int exit_code) : CLI::Error("Failure", message, exit_code) {}
};

// Parses, runs, and returns the exit code. May throw what the standard library throws.
int RunSubcommands(CLI::App& app, const std::vector<Subcommand>& subcommands, int argc,
                   const char* const* argv);

// The whole of main: for all that `run` throws, a line and an exit code.
int Main(int argc, char** argv, int (*run)(int argc, char** argv));

}  // namespace castor::cli

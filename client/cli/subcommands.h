// A program of subcommands, such as castor and castor-load: declares them, parses the arguments,
// and explains errors in them.
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

// An error that ends the program with a message and an exit code.
class Failure : public CLI::Error {
 public:
  Failure(const std::string& message, int exit_code) : CLI::Error("Failure", message, exit_code) {}
};

// Parses, runs, and returns the exit code. May throw what the standard library throws.
int RunSubcommands(CLI::App& app, const std::vector<Subcommand>& subcommands, int argc,
                   const char* const* argv);

// The body of main: turns exceptions of `run` into a line on standard error and an exit code.
int Main(int argc, char** argv, int (*run)(int argc, char** argv));

}  // namespace castor::cli

#include "client/cli/subcommands.h"

#include <algorithm>
#include <exception>
#include <new>
#include <sstream>
#include <utility>

#include "client/cli/command.h"

namespace castor::cli {
namespace {

// Explains the first unknown flag among the arguments left over; empty if there is none.
std::string ExplainFlag(const std::vector<std::string>& left, const CLI::App& command,
                        const std::string& name) {
  const auto found = std::find_if(left.begin(), left.end(), [](const std::string& argument) {
    return argument.size() > 1 && argument[0] == '-';
  });
  if (found == left.end()) return "";
  const std::string flag = found->substr(0, found->find('='));
  return flag +
         (command.get_option_no_throw(flag) == nullptr ? " is not a flag of " : " belongs after ") +
         name;
}

// The line for an error that parsing threw: what is wrong, and where the help is.
std::string ExplainParseError(const CLI::App& app, const CLI::Error& error, int argc,
                              const char* const* argv) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  for (const CLI::App* each : app.get_subcommands()) {  // the parsed ones
    command = each;
    name += " " + each->get_name();
  }
  std::string text;
  if (command == &app && argc > 1 && argv[1][0] != '-') {
    text = "'" + std::string(argv[1]) + "' is not a subcommand";
  } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
             command == &app) {
    text = ExplainFlag(app.remaining(true), *command, name);
  }
  return (text.empty() ? std::string(error.what()) : text) + "; see " + name + " --help";
}

}  // namespace

int RunSubcommands(CLI::App& app, const std::vector<Subcommand>& subcommands, int argc,
                   const char* const* argv) {
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  std::vector<std::pair<CLI::App*, Runner>> commands;
  for (const Subcommand& each : subcommands) {
    CLI::App* const command = app.add_subcommand(each.name, each.help);
    commands.emplace_back(command, each.declare(command));
  }
  try {
    app.parse(argc, argv);
    for (const auto& [command, run] : commands) {
      if (command->parsed()) return run();
    }
    return kUsageError;
  } catch (const CLI::Success& request) {  // --help and --version are a kind of error
    std::ostringstream text;
    app.exit(request, text, text);
    return WriteText(text.str());
  } catch (const Failure& error) {
    PrintError(error.what());
    return error.get_exit_code();
  } catch (const CLI::Error& error) {
    PrintError(ExplainParseError(app, error, argc, argv));
    return kUsageError;
  }
}

int Main(int argc, char** argv, int (*run)(int argc, char** argv)) {
  if (const auto failed = KeepStandardDescriptors(argv)) return *failed;
  try {
    SilenceGrpc();
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    PrintError("not enough memory on this machine");
  } catch (const std::exception& error) {
    PrintError(error.what());
  }
  return kUsageError;
}

}  // namespace castor::cli

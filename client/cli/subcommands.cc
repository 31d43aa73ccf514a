#include "client/cli/subcommands.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <new>
#include <sstream>
#include <utility>

#include "client/cli/command.h"

namespace castor::cli {
namespace {

// How many letters to insert, delete, replace or exchange with their neighbour.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost.back().back();
}

// The candidate that `typed` was probably meant to be; empty if none is near.
std::string NearestOf(const std::string& typed, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t least = std::max<size_t>(1, typed.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    // The beginning of a name is near it, however long the rest.
    const size_t begun = candidate.starts_with(typed) && typed.size() > 3 ? 1 : least;
    const size_t distance = std::min(begun, Distance(typed.substr(0, 64), candidate));
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string MeantText(const std::string& nearest) {
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

// "--model" of "--model" and "--model=x".
std::string FlagOf(const std::string& argument) { return argument.substr(0, argument.find('=')); }

std::vector<std::string> FlagsOf(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_fnames()) {
      if (name.size() > 1) flags.push_back("--" + name);
    }
  }
  return flags;
}

// Of a flag that is none; empty if there is none among the arguments left over.
std::string ExplainFlag(const std::vector<std::string>& left, const CLI::App& command,
                        const std::string& name) {
  const auto found = std::find_if(left.begin(), left.end(), [](const std::string& argument) {
    return argument.size() > 1 && argument[0] == '-';
  });
  if (found == left.end()) return "";
  const std::string flag = FlagOf(*found);
  const std::vector<std::string> flags = FlagsOf(command);
  if (std::find(flags.begin(), flags.end(), flag) != flags.end()) {
    return flag + " belongs after " + name;
  }
  return flag + " is not a flag of " + name + MeantText(NearestOf(flag, flags));
}

// The line for an error that parsing threw: what is wrong, the nearest subcommand or flag where one
// was mistyped, and where the help is.
std::string ExplainParseError(const CLI::App& app, const CLI::Error& error, int argc,
                              const char* const* argv) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  for (const CLI::App* each : app.get_subcommands()) {  // those that were parsed
    command = each;
    name += " " + each->get_name();
  }
  std::string text;
  if (command == &app && argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
    const std::string typed = argv[1];
    text = "'" + typed + "' is not a subcommand" + MeantText(NearestOf(typed, names));
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
    Complain(error.what());
    return error.get_exit_code();
  } catch (const CLI::Error& error) {
    Complain(ExplainParseError(app, error, argc, argv));
    return kUsageError;
  }
}

int Main(int argc, char** argv, int (*run)(int argc, char** argv)) {
  if (const auto failed = KeepStandardDescriptors(argv)) return *failed;
  try {
    SilenceGrpc();
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    Complain("not enough memory on this machine");
  } catch (const std::exception& error) {
    Complain(error.what());
  }
  return kUsageError;
}

}  // namespace castor::cli

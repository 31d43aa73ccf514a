#include "client/cli/subcommands.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <sstream>
#include <utility>

#include "client/cli/command.h"

namespace castor::cli {
namespace {

// "; did you mean encode?" for "encodee", by the nearest of the candidates; "" if none is near.
std::string DidYouMean(const std::string& typed, const std::vector<std::string>& candidates) {
  const auto sorted = [](std::string text) {
    std::sort(text.begin(), text.end());
    return text;
  };
  std::string nearest;
  size_t least = 4;  // letters that are too many or missing, in any order
  for (const std::string& candidate : candidates) {
    const std::string a = sorted(typed), b = sorted(candidate);
    std::string differ;
    std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(),
                                  std::back_inserter(differ));
    if (differ.size() >= least) continue;
    least = differ.size();
    nearest = candidate;
  }
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

// Explains the first unknown flag among the arguments left over; empty if there is none.
std::string ExplainFlag(const std::vector<std::string>& left, const CLI::App& command,
                        const std::string& name) {
  const auto found = std::find_if(left.begin(), left.end(), [](const std::string& argument) {
    return argument.size() > 1 && argument[0] == '-';
  });
  if (found == left.end()) return "";
  const std::string flag = found->substr(0, found->find('='));
  if (command.get_option_no_throw(flag) != nullptr) return flag + " belongs after " + name;
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& known : option->get_lnames()) flags.push_back("--" + known);
  }
  return flag + " is not a flag of " + name + DidYouMean(flag, flags);
}

// The line for an error that parsing threw: what is wrong, what was probably meant, and where the
// help is.
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
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
    text = "'" + std::string(argv[1]) + "' is not a subcommand" + DidYouMean(argv[1], names);
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

#include <CLI/CLI.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/suggest.h"

namespace castor::cli {
namespace {

// --help and --version, which CLI11 treats as a kind of error.
int Show(const CLI::App& app, const CLI::Success& request) {
  std::ostringstream text;
  app.exit(request, text, text);
  return WriteText(text.str());
}

}  // namespace

int Run(int argc, char** argv) {
  SilenceGrpc();
  CLI::App app("Castor's client: attention and encoder inference over gRPC.\n", "castor");
  app.set_version_flag("--version", "castor " CASTOR_VERSION, "Print the version and exit");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Examples:\n"
      "  castor health\n"
      "  castor attend --lengths 128,77,512 --heads 8 --head-dim 64\n"
      "  castor encode 'A cat sleeps.' 'A kitten naps.' 'Rates rose again.'\n"
      "\n"
      "castor SUBCOMMAND --help says more. Exit codes: 0 ok, 1 server or connection, 2 usage, or\n"
      "a file, the output or the memory here, 3 the answer failed its check.\n");

  std::vector<std::pair<CLI::App*, Runner>> commands;
  auto add = [&](const char* name, const char* help, Runner (*declare)(CLI::App*)) {
    CLI::App* command = app.add_subcommand(name, help);
    commands.emplace_back(command, declare(command));
  };
  add("attend", "Run attention on random tensors or .npy files, and check the answer",
      AddAttendCommand);
  add("encode", "Encode texts, text pairs, token ids or embeddings with one of the server's models",
      AddEncodeCommand);
  add("models", "List the server's models", AddModelsCommand);
  add("info", "Show the server's devices, kernels, limits and defaults", AddInfoCommand);
  add("health", "Check whether the server is serving (exit code 0 if so)", AddHealthCommand);
  add("top", "Monitor servers live: requests by kernel, queue, latencies, memory", AddTopCommand);

  try {
    app.parse(argc, argv);
    for (const auto& [command, run] : commands) {
      if (command->parsed()) return run();
    }
    return kUsageError;
  } catch (const CLI::Success& request) {  // --help, --version
    return Show(app, request);
  } catch (const UsageError& error) {
    Complain(error.what());
    return kUsageError;
  } catch (const CLI::Error& error) {
    Complain(ExplainParseError(app, error, argc, argv));
    return kUsageError;
  }
}

}  // namespace castor::cli

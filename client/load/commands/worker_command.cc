#include <memory>

#include "client/cli/command.h"
#include "client/load/commands/command.h"
#include "client/load/commands/output_flags.h"
#include "client/load/commands/session.h"
#include "client/load/workers/token.h"
#include "client/load/workers/worker_server.h"

namespace castor::load {
namespace {

int RunWorker(const std::string& listen, const std::string& token_file) {
  WatchForStop();
  WorkerServer server({.listen = listen,
                       .token = token_file.empty() ? "" : ReadToken(token_file),
                       .version = CASTOR_VERSION},
                      PrepareOnWorker);
  Say("castor-load worker: listening at " + server.address());
  AwaitStop();
  server.Shutdown();
  return kMet;
}

}  // namespace

Runner AddWorkerCommand(CLI::App* command) {
  auto listen = std::make_shared<std::string>("127.0.0.1:50061");
  auto token_file = std::make_shared<std::string>();
  command->add_option("--listen", *listen, "Where a coordinator finds it, or unix:PATH")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  command
      ->add_option("--token-file", *token_file,
                   "What callers must bring; needed where other machines can connect")
      ->type_name("FILE");
  command->footer(
      "Sends a share of the requests of 'castor-load run --worker ...' to wherever that says: do\n"
      "not let strangers reach it.");
  return [=] { return RunWorker(*listen, *token_file); };
}

}  // namespace castor::load

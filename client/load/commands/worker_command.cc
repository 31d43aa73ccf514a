#include <memory>

#include "client/cli/security_flags.h"
#include "client/cli/values.h"
#include "client/load/commands/command.h"
#include "client/load/commands/session.h"
#include "client/load/workers/token.h"
#include "client/load/workers/worker_main.h"

namespace castor::load {

Runner AddWorkerCommand(CLI::App* command) {
  auto listen = std::make_shared<std::string>("127.0.0.1:50061");
  auto token_file = std::make_shared<std::string>();
  command->add_option("--listen", *listen, "Where a coordinator finds it, or unix:PATH")
      ->type_name("HOST:PORT")
      ->check(cli::Name())
      ->capture_default_str();
  command
      ->add_option("--token", *token_file,
                   "What callers must bring; needed where other machines can connect")
      ->envname("CASTOR_LOAD_WORKER_TOKEN_FILE")
      ->type_name("FILE")
      ->check(cli::FileName());
  auto security = std::make_shared<cli::SecurityFlags>();
  cli::AddSecurityFlags(command, security.get(), "Connections to the servers");
  command->footer(
      "Sends a share of the requests of 'castor-load run --worker ...' to wherever that says: do\n"
      "not let strangers reach it. Certificates and tokens for the servers are this worker's own;\n"
      "only whether to use TLS comes with the run.");
  return [=] {
    return ServeAsWorker({.listen = *listen,
                          .token = token_file->empty() ? "" : ReadToken(*token_file),
                          .version = CASTOR_VERSION},
                         [security](const Job& job) { return PrepareOnWorker(job, *security); });
  };
}

}  // namespace castor::load

#include "client/cli/command.h"
#include "client/load/commands/command.h"
#include "client/load/workload/parse.h"

namespace castor::load {

Runner AddExampleCommand(CLI::App*) {
  return [] { return cli::WriteText(std::string(ExampleToml())); };
}

}  // namespace castor::load

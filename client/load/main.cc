#include <cstdio>
#include <exception>

#include "client/cli/command.h"
#include "client/load/commands/command.h"

int main(int argc, char** argv) {
  if (const auto exit_code = castor::cli::KeepStandardDescriptors(argv)) return *exit_code;
  try {
    return castor::load::Run(argc, argv);
  } catch (const std::exception& error) {
    castor::cli::Complain(error.what());
    return castor::load::kUsageError;
  }
}

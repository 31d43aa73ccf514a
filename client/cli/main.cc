// castor: Castor's command-line client.
#include <exception>
#include <new>

#include "client/cli/command.h"

int main(int argc, char** argv) {
  if (const auto failed = castor::cli::KeepStandardDescriptors(argv)) return *failed;
  try {
    return castor::cli::Run(argc, argv);
  } catch (const std::bad_alloc&) {
    castor::cli::Complain("not enough memory on this machine");
  } catch (const std::exception& error) {
    castor::cli::Complain(error.what());
  }
  return castor::cli::kUsageError;
}

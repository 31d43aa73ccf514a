// castor: Castor's command-line client.
#include "client/cli/command.h"

int main(int argc, char** argv) { return castor::cli::Main(argc, argv, castor::cli::Run); }

#include "client/cli/command.h"
#include "client/load/commands/command.h"

int main(int argc, char** argv) { return castor::cli::Main(argc, argv, castor::load::Run); }

// castor-load: a load tester for attention and encoder servers.
#include <CLI/CLI.hpp>

#include "client/cli/command.h"
#include "client/load/commands/command.h"

namespace castor::load {
namespace {

int Run(int argc, char** argv) {
  CLI::App app(
      "castor-load: a load tester. Requests follow a schedule that is fixed before the run;\n"
      "latency counts from the time at which a request should have been sent; a run that the\n"
      "client limited is reported as INVALID.\n",
      "castor-load");
  app.set_version_flag("--version", "castor-load " CASTOR_VERSION, "Print the version and exit");
  app.footer(
      "Examples:\n"
      "  castor-load run --attend 128 --rate 200 --duration 30s\n"
      "  castor-load example > mixed.toml && castor-load run --workload mixed.toml --html "
      "run.html\n"
      "  castor-load find-rate --encode 16 --objective 'p99 <= 50ms'\n"
      "  castor-load compare before.json after.json --fail-on 'p99 > +5%'\n"
      "\n"
      "See castor-load SUBCOMMAND --help. Exit codes: 0 valid, and all objectives met;\n"
      "1 server or connection; 2 usage, files or memory here; 3 an objective is missed;\n"
      "4 INVALID, or too little was measured to tell; 5 a regression; 130 interrupted.\n");

  return cli::RunSubcommands(
      app,
      {{"run", "Send a workload and report the results", AddRunCommand},
       {"find-rate", "Find the highest rate at which every class meets its objectives",
        AddFindRateCommand},
       {"sweep", "Measure the latency-throughput curve over rates, kernels and lengths",
        AddSweepCommand},
       {"compare", "Compare two saved runs, with intervals and a verdict", AddCompareCommand},
       {"report", "Report saved runs: one, or the shares of one plan added up", AddReportCommand},
       {"example", "Print a commented workload", AddExampleCommand}},
      argc, argv);
}

}  // namespace
}  // namespace castor::load

int main(int argc, char** argv) { return castor::cli::Main(argc, argv, castor::load::Run); }

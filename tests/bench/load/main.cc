// Shows over real sockets that no request holds up the others, and prints what it measured as a
// Markdown table.
//
//   load_bench --server build/server/castor-server --model .deps/minilm
//
// It starts a server for each scenario, and takes about ten minutes. Ends with 1 if a bound was
// missed. Needs a quiet machine: the bounds are milliseconds.
//
//   load_bench --server ... --model ... --only soak --seconds 600
//
// Memory that a server keeps shows in minutes only. For less than 300 s nothing is asked of its
// memory: enough for a server that is built with a sanitizer.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/bench/load/bench.h"

namespace castor::bench {

const std::vector<Scenario>& Scenarios() {
  static const std::vector<Scenario> scenarios = {
      {"short_beside_long", "short attention while one of 65,536 tokens computes", ShortDuringLong},
      {"huge_attend", "a million tokens, cancelled or past their deadline", HugeAttend},
      {"huge_text", "two words while 100 texts of 1 MiB compute", HugeText},
      {"many_spans", "two words while 65,536 spans over 512 tokens compute", ManySpans},
      {"overload", "up to ten times as many texts as the server can encode", Overload},
      {"greedy_tenant", "one tenant asks for ten times its share", GreedyTenant},
      {"call_cost", "what a call takes, of what a gRPC server takes that does nothing", CallCost},
      {"exactly_once", "10,000 mixed requests, cancellations, and a drain", ExactlyOnce},
      {"soak", "mixed traffic for --seconds, at best 600; only when it is named", Soak, false},
  };
  return scenarios;
}

}  // namespace castor::bench

int main(int argc, char** argv) {
  using castor::bench::Scenario;
  castor::bench::Settings settings;
  std::vector<std::string> only;
  double seconds = 10;
  CLI::App app("Shows that no request holds up the others.\n", "load_bench");
  app.add_option("--server", settings.server, "The castor-server to load")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--model", settings.model, "The directory of a text encoder")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--seconds", seconds, "Length of each measuring phase")
      ->check(CLI::Range(2.0, 86400.0))
      ->capture_default_str();
  app.add_option("--rounds", settings.rounds, "Number of turns of phases that are compared")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  std::vector<std::string> names;
  std::string footer = "Scenarios:\n";
  for (const Scenario& scenario : castor::bench::Scenarios()) {
    names.emplace_back(scenario.name);
    footer += std::string("  ") + scenario.name + ": " + scenario.about + "\n";
  }
  app.add_option("--only", only, "Scenarios to run; repeatable")->check(CLI::IsMember(names));
  app.footer(footer);
  CLI11_PARSE(app, argc, argv);
  settings.phase = castor::bench::Seconds(seconds);
  // A bench must not hang: a server may take minutes over a long request, and no longer.
  alarm(static_cast<unsigned>(3600 + 200 * settings.rounds * seconds));

  castor::bench::Report report;
  std::printf("| scenario | what | measured | bound | |\n|---|---|---|---|---|\n");
  for (const Scenario& scenario : castor::bench::Scenarios()) {
    const bool named = std::find(only.begin(), only.end(), scenario.name) != only.end();
    if (only.empty() ? !scenario.by_default : !named) continue;
    report.Begin(scenario.name);
    scenario.run(settings, report);
  }
  std::printf("\n%d passed, %d missed\n", report.passed(), report.missed());
  return report.missed() == 0 ? 0 : 1;
}

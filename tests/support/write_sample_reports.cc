// Writes reports of simulated runs, to be looked at: write_sample_reports FOLDER.
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "client/load/output/html.h"
#include "client/load/output/summary.h"
#include "client/load/output/write_reports.h"
#include "tests/support/load_runs.h"

namespace castor {
namespace {

load::CompareView SampleComparison() {
  using Row = load::CompareRow;
  load::CompareView view;
  view.name_a = "before.json";
  view.name_b = "after.json";
  view.headline = "1 of 6 figures is worse, 3 are better";
  view.worse = true;
  view.warnings = {"Run before.json missed an objective."};
  view.rows = {
      {"interactive", "p50", Row::Kind::kDuration, 3.9e6, 3.1e6, -0.205, -0.24, -0.17,
       Row::Judgement::kBetter, "improvement"},
      {"interactive", "p99", Row::Kind::kDuration, 41e6, 38e6, -0.07, -0.15, 0.02,
       Row::Judgement::kSame, "unclear"},
      {"interactive", "good answers", Row::Kind::kShare, 0.968, 0.981, 0.013, 0.008, 0.019,
       Row::Judgement::kBetter, "improvement"},
      {"documents", "p50", Row::Kind::kDuration, 14.8e6, 12.2e6, -0.176, -0.22, -0.12,
       Row::Judgement::kBetter, "improvement"},
      {"documents", "p99", Row::Kind::kDuration, 1.31e9, 1.42e9, 0.084, 0.031, 0.15,
       Row::Judgement::kWorse, "regression"},
      {"documents", "OK answers", Row::Kind::kRate, 21.7, 21.9, 0.009, -0.012, 0.03,
       Row::Judgement::kSame, "unclear"},
  };
  return view;
}

void WriteSamples(const std::string& folder) {
  const load::RunData good = SimulateRun({});
  const load::RunData late = SimulateRun({.max_waiting = 1000, .max_sent = 24, .seed = 2});
  const load::RunData hour = SimulateRun({.seconds = 3600, .classes = 4, .seed = 3});
  const load::RunData slow = SimulateRun({.stall_at = 40, .speed = 0.8, .seed = 4});
  for (const auto& [name, run, valid] :
       {std::tuple("good", &good, true), {"late", &late, false}, {"hour", &hour, true}}) {
    load::WriteReports(*run, VerdictOf(*run, valid), load::ReportPaths::In(folder + "/" + name));
    load::WriteFileAtomically(folder + "/" + name + "/summary.txt",
                              load::SummaryText(*run, VerdictOf(*run, valid)));
  }
  load::WriteFileAtomically(folder + "/compare.html",
                            load::CompareHtml(slow, good, SampleComparison()));
}

}  // namespace
}  // namespace castor

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_sample_reports FOLDER\n");
    return 2;
  }
  try {
    castor::WriteSamples(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_sample_reports: %s\n", error.what());
    return 1;
  }
  return 0;
}

#include "client/load/judge/verdict.h"

#include <algorithm>

#include "client/cli/report.h"
#include "client/load/judge/rules.h"

namespace castor::load {
namespace {

bool AllPassed(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.passed; });
}

}  // namespace

bool Verdict::valid() const { return AllPassed(validity); }
bool Verdict::met() const { return AllPassed(objectives); }

std::string FoundTime(double ns) { return cli::FormatMicroseconds(ns / 1000); }
std::string FoundShare(double share) { return cli::FormatReal(100 * share, "%.3g %%"); }

Verdict Judge(const RunData& run, const Rules& rules) {
  Verdict verdict;
  verdict.validity = {
      CheckDuration(run, rules),  CheckEarlyStopping(run, rules), CheckStationary(run, rules),
      CheckClientLag(run, rules), CheckClientCpu(run, rules),     CheckClientDropped(run, rules),
      CheckAllAnswered(run),      CheckCountsAgree(run),          CheckVerified(run),
  };
  for (size_t cls = 0; cls < run.classes.size(); ++cls) {
    for (Finding& finding : CheckObjective(run, cls, rules)) {
      verdict.objectives.push_back(std::move(finding));
    }
  }
  return verdict;
}

}  // namespace castor::load

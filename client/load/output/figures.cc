#include "client/load/output/figures.h"

#include <algorithm>
#include <iterator>

#include "client/load/output/text.h"

namespace castor::load {

std::vector<Cell> ByClass(const RunData& run) {
  std::vector<Cell> classes(run.cells.size());
  for (size_t i = 0; i < run.cells.size(); ++i) {
    for (const Cell& cell : run.cells[i]) classes[i].Add(cell);
  }
  return classes;
}

std::string ClassName(const RunData& run, size_t cls) {
  return cls < run.classes.size() ? run.classes[cls] : "class " + std::to_string(cls + 1);
}

std::string EndpointName(const RunData& run, size_t endpoint) {
  return endpoint < run.endpoints.size() ? run.endpoints[endpoint]
                                         : "endpoint " + std::to_string(endpoint + 1);
}

std::vector<Finding> FailedOf(const std::vector<Finding>& findings) {
  std::vector<Finding> failed;
  std::copy_if(findings.begin(), findings.end(), std::back_inserter(failed),
               [](const Finding& finding) { return !finding.passed; });
  return failed;
}

std::string ValidityText(const Verdict& verdict) {
  const std::vector<Finding> failed = FailedOf(verdict.validity);
  if (failed.empty()) return "VALID";
  std::string text = "INVALID: ";
  for (const Finding& finding : failed) {
    text += (&finding == &failed.front() ? "" : ", ") + finding.rule;
  }
  return text;
}

std::string ObjectivesText(const Verdict& verdict) {
  if (verdict.objectives.empty()) return "no objectives";
  const size_t missed = FailedOf(verdict.objectives).size();
  return missed == 0 ? "objectives met"
                     : "objectives MISSED: " + std::to_string(missed) + " of " +
                           std::to_string(verdict.objectives.size());
}

std::string LoopText(const RunData& run) {
  return run.open_loop ? "open loop, " + RateText(run.asked_rate) + " requests/s" : "closed loop";
}

}  // namespace castor::load

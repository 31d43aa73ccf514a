#include "client/load/results/verdict.h"

#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "client/cli/report.h"
#include "client/load/results/statistics.h"
#include "client/load/workload/toml_table.h"

namespace castor::load {
namespace {

using cli::FormatReal;

std::string SecondsText(double seconds) { return FormatReal(seconds, "%.4g s"); }
using cli::TimeText;
std::string ShareText(double share) { return FormatReal(100 * share, "%.3g %%"); }

// `text` has the figures; `why` follows it if the rule is broken, and says what to do.
Finding Rule(const char* rule, bool passed, const std::string& text, const std::string& why,
             Cause cause = Cause::kOther) {
  return {.rule = rule, .passed = passed, .text = passed ? text : text + why, .cause = cause};
}

// ---- rules about the run: long enough, enough requests, steady

Finding CheckDuration(const RunData& run, const Rules& rules) {
  const double seconds = run.MeasuredSeconds();
  return Rule("duration", seconds >= rules.min_seconds,
              "requests were sent for " + SecondsText(seconds),
              ": run for at least " + SecondsText(rules.min_seconds), Cause::kTooShort);
}

// nullopt: enough.
std::optional<std::string> TooFew(const std::string& whose, int64_t requests, double quantile,
                                  double seconds, double confidence) {
  const int64_t needed = RequestsNeeded(quantile, confidence);
  if (requests >= needed) return std::nullopt;
  std::string text = whose + " had " + std::to_string(requests) + " requests, and " +
                     QuantileName(quantile) + " at a confidence of " + ShareText(confidence) +
                     " takes " + std::to_string(needed) + " or more: run for ";
  if (requests == 0) return text + "longer";
  const double ratio = static_cast<double>(needed) / static_cast<double>(requests);
  return text + "at least " + SecondsText(std::ceil(seconds * ratio));
}

Finding CheckEnoughRequests(const RunData& run, const Rules& rules) {
  std::vector<std::string> problems;
  bool goals = false;
  const auto check = [&](const std::string& whose, int64_t requests, double quantile) {
    const auto problem = TooFew(whose, requests, quantile, run.MeasuredSeconds(), rules.confidence);
    if (problem) problems.push_back(*problem);
  };
  for (size_t cls = 0; cls < run.classes.size(); ++cls) {
    for (const LatencyGoal& goal : run.objectives[cls].latencies) {
      goals = true;
      check("class '" + run.classes[cls] + "'", run.OfClass(cls).counted(), goal.quantile);
    }
  }
  // Reports show p99 even without a goal.
  if (!goals) check("the run", run.Total().counted(), 0.99);
  if (!problems.empty()) {
    return Rule("enough-requests", false, absl::StrJoin(problems, "; "), "", Cause::kTooShort);
  }
  return {.rule = "enough-requests",
          .text = std::string("there are enough requests for ") +
                  (goals ? "each class's percentiles" : "p99") + " at a confidence of " +
                  ShareText(rules.confidence)};
}

// A figure of each whole second, without seconds that have none (nullopt).
std::vector<double> SeriesOf(const RunData& run,
                             const std::function<std::optional<double>(const Second&)>& figure) {
  // The last second may be incomplete, so leave it out.
  const auto whole = static_cast<size_t>(std::floor(run.MeasuredSeconds()));
  std::vector<double> series;
  for (size_t i = 0; i < std::min(run.seconds.size(), whole); ++i) {
    if (const auto value = figure(run.OfSecond(i))) series.push_back(*value);
  }
  return series;
}

Finding CheckStationary(const RunData& run, const Rules& rules) {
  const Growth in_flight = GrowthOf(SeriesOf(run,
                                             [](const Second& second) -> std::optional<double> {
                                               return static_cast<double>(second.in_flight);
                                             }),
                                    rules.confidence);
  const Growth latency = GrowthOf(SeriesOf(run,
                                           [](const Second& second) -> std::optional<double> {
                                             if (second.intended.empty()) return std::nullopt;
                                             return second.intended.mean();
                                           }),
                                  rules.confidence);
  // More than chance, more than the allowed share of the mean, and enough to matter.
  const auto grew = [&](const Growth& growth, double least) {
    return growth.known && growth.at_least > rules.max_drift * growth.mean && growth.growth > least;
  };
  const auto text = [&](const std::string& what, const Growth& growth, auto figure) {
    return what + " grew by " + figure(growth.growth) + " over the run, around a mean of " +
           figure(growth.mean) + " (by at least " + figure(growth.at_least) +
           " at a confidence of " + ShareText(rules.confidence) + ")";
  };
  Finding finding = {.rule = "stationary", .cause = Cause::kOverload};
  if (run.open_loop && grew(in_flight, 1)) {
    // In a closed loop, the number in flight is the number of callers.
    finding.passed = false;
    finding.text =
        text("work in flight", in_flight, [](double value) { return FormatReal(value, "%.3g"); }) +
        ": the server does not keep up, and a longer run would show longer latencies; "
        "lower --rate";
  } else if (grew(latency, 0)) {
    finding.passed = false;
    finding.text = text("latency", latency, TimeText) +
                   ": not a steady state; warm up for longer, or lower the load";
  } else if (!latency.known) {
    finding.text = "not checked: this needs 10 s of answers";
  } else {
    finding.text = "neither work in flight nor latency grew over the run by more than " +
                   ShareText(rules.max_drift) + " of its mean";
  }
  return finding;
}

// ---- rules about the client: it was not the limit

// Latency counts from the intended time, so a client that sends late makes it too long. The rule
// limits this addition and not the lag itself: where client and server share processors, the client
// waits for its turn as the server does.
Finding CheckClientLag(const RunData& run, const Rules& rules) {
  const Cell total = run.Total();
  std::vector<std::string> added;
  bool passed = true;
  for (const double quantile : {0.5, 0.99}) {
    const auto intended = static_cast<double>(total.intended.ValueAt(quantile));
    const double late =
        std::max(0.0, intended - static_cast<double>(total.service.ValueAt(quantile)));
    const double most = std::max(rules.max_lag_ns, rules.max_lag_share * intended);
    added.push_back(TimeText(late) + " to " + QuantileName(quantile) +
                    (late <= most ? "" : ", more than " + TimeText(most)));
    passed = passed && late <= most;
  }
  return Rule("client-lag", passed,
              "sending late added " + absl::StrJoin(added, " and ") + " of latency",
              ": the client did not keep up; lower --rate, add --threads, or send from another "
              "machine",
              Cause::kClient);
}

Finding CheckClientCpu(const RunData& run, const Rules& rules) {
  double busiest = 0;
  for (const ClientLoad& client : run.clients) busiest = std::max(busiest, client.busiest_thread);
  return Rule("client-cpu", busiest <= rules.max_thread_share,
              "the client's busiest thread took " + ShareText(busiest) + " of a core",
              ", more than " + ShareText(rules.max_thread_share) +
                  ": the client was the limit; lower --rate, add --threads, or send shares from "
                  "several processes (--share)",
              Cause::kClient);
}

Finding CheckClientDropped(const RunData& run) {
  const Cell total = run.Total();
  const int64_t dropped = total.of(Outcome::kDropped);
  if (dropped == 0) return {.rule = "client-dropped", .text = "every planned request was sent"};
  const double share = static_cast<double>(dropped) / static_cast<double>(total.planned());
  return Rule("client-dropped", false,
              std::to_string(dropped) + " requests (" + ShareText(share) +
                  " of those planned) were not sent, since --max-in-flight was reached: latencies "
                  "are those of less load than was planned; lower --rate or raise the cap",
              "", Cause::kOverload);
}

Finding CheckShares(const RunData& run) {
  const int64_t shares = run.clients.front().shares;
  const auto here = static_cast<int64_t>(run.clients.size());
  if (shares == 1) return {.rule = "shares", .text = "one process sent the whole plan"};
  const bool alone = here == 1 && shares > 1;
  return Rule("shares", alone || here == shares,
              std::to_string(here) + " of " + std::to_string(shares) +
                  " shares of the plan are present" +
                  (alone ? ": add them up with castor-load report FILE FILE..." : ""),
              "");
}

// ---- rules about the answers: none is missing, counted twice, or wrong

// The difference between the server's count and the client's, or "". The server may count calls
// that the client ended itself with any code, or not at all; all others must have ended there as
// here.
std::string Difference(const ServerCounts& server) {
  const auto sent = [&](Outcome outcome) { return server.calls[static_cast<size_t>(outcome)]; };
  int64_t counted = 0, counted_ok = 0, all = 0;
  for (const auto& [code, count] : server.counted) {
    if (count < 0) return "its counters fell: it was restarted";
    counted += count;
    if (code == "OK") counted_ok += count;
  }
  for (size_t i = 0; i < server.calls.size(); ++i) all += server.calls[i];
  all -= sent(Outcome::kDropped);
  // The call of a failed connection may have reached the server.
  const int64_t ended_here =
      sent(Outcome::kCancelled) + sent(Outcome::kExpired) + sent(Outcome::kFailed);
  const int64_t ok = sent(Outcome::kOk);
  const auto text = [](const char* what, int64_t here, int64_t there) {
    return std::string(what) + std::to_string(here) + " here and " + std::to_string(there) +
           " there";
  };
  if (counted_ok < ok || counted_ok > ok + ended_here) return text("OK ", ok, counted_ok);
  if (counted < all - ended_here || counted > all) return text("in all ", all, counted);
  return "";
}

Finding CheckCountsAgree(const RunData& run) {
  std::vector<std::string> problems;
  size_t checked = 0;
  for (size_t i = 0; i < run.servers.size(); ++i) {
    if (run.servers[i].metrics.empty()) continue;
    ++checked;
    const std::string difference = Difference(run.servers[i]);
    if (!difference.empty()) problems.push_back(run.endpoints[i] + ": " + difference);
  }
  if (!problems.empty()) {
    return Rule("counts-agree", false,
                "the server counted other calls than this client (" +
                    absl::StrJoin(problems, "; ") +
                    "): calls did not reach it, or others call it as well",
                "");
  }
  if (checked == 0) {
    return {.rule = "counts-agree",
            .text = run.clients.front().shares > 1
                        ? "not checked: several processes sent, and a server counts all"
                        : "not checked: the server's metrics cannot be read from here (--metrics)"};
  }
  return {.rule = "counts-agree",
          .text = "the metrics of " + std::to_string(checked) + " of " +
                  std::to_string(run.endpoints.size()) + " endpoints count the same calls"};
}

Finding CheckVerified(const RunData& run) {
  const Verified verified = run.Total().verified;
  const int64_t compared = verified.equal + verified.different;
  if (compared == 0) {
    return {.rule = "verified", .text = "not checked: no answers were compared (--verify)"};
  }
  const std::string differ = verified.different == 0 ? "none" : std::to_string(verified.different);
  return Rule("verified", verified.different == 0,
              std::to_string(compared) +
                  " answers were compared with those of the same requests sent alone; " + differ +
                  " differ",
              ": answers depend on concurrent requests");
}

// ---- objectives

Finding CheckLatency(const RunData& run, size_t cls, const Cell& cell, size_t index,
                     const Rules& rules) {
  const LatencyGoal& goal = run.objectives[cls].latencies[index];
  const std::string name = QuantileName(goal.quantile);
  const std::string limit = TimeText(static_cast<double>(goal.limit.count()));
  Finding finding = {.rule = run.classes[cls] + ": " + name + " <= " + limit};
  const int64_t requests = cell.counted(), above = cell.above_goal[index];
  if (requests == 0) {
    finding.passed = false;
    finding.unsure = true;
    finding.text = "no request of this class was sent: run for longer, or raise its weight";
    return finding;
  }
  const double share = static_cast<double>(above) / static_cast<double>(requests);
  finding.passed = ConfidenceWithin(goal.quantile, requests, above) >= rules.confidence;
  finding.text = std::to_string(above) + " of " + std::to_string(requests) + " requests (" +
                 ShareText(share) + ") took longer than " + limit + " or got no OK answer";
  if (finding.passed) return finding;
  if (share > 1 - goal.quantile) {
    finding.text += ", and " + ShareText(1 - goal.quantile) + " may";
    return finding;
  }
  finding.unsure = true;
  finding.text += ": too few requests to be " + ShareText(rules.confidence) + " sure of " + name +
                  "; run for longer";
  return finding;
}

void CheckObjective(const RunData& run, size_t cls, const Rules& rules,
                    std::vector<Finding>* findings) {
  const Objective& objective = run.objectives[cls];
  const Cell cell = run.OfClass(cls);
  for (size_t i = 0; i < objective.latencies.size(); ++i) {
    findings->push_back(CheckLatency(run, cls, cell, i, rules));
  }
  if (!objective.max_error_share) return;
  const int64_t errors = cell.counted() - cell.of(Outcome::kOk);
  const std::string most = ShareText(*objective.max_error_share);
  findings->push_back(
      {.rule = run.classes[cls] + ": errors <= " + most,
       .passed = cell.counted() > 0 && cell.error_share() <= *objective.max_error_share,
       .text = std::to_string(errors) + " of " + std::to_string(cell.counted()) + " requests (" +
               ShareText(cell.error_share()) + ") got no OK answer, and " + most + " may"});
}

bool AllPassed(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.passed; });
}

}  // namespace

bool Verdict::valid() const { return AllPassed(validity); }
bool Verdict::met() const { return AllPassed(objectives); }

Verdict Judge(const RunData& run, const Rules& rules) {
  Verdict verdict;
  verdict.validity = {
      CheckDuration(run, rules),  CheckEnoughRequests(run, rules), CheckStationary(run, rules),
      CheckClientLag(run, rules), CheckClientCpu(run, rules),      CheckClientDropped(run),
      CheckShares(run),           CheckCountsAgree(run),           CheckVerified(run)};
  for (size_t cls = 0; cls < run.classes.size(); ++cls) {
    CheckObjective(run, cls, rules, &verdict.objectives);
  }
  return verdict;
}

std::string ValidityText(const Verdict& verdict) {
  std::string failed;
  for (const Finding& finding : verdict.validity) {
    if (!finding.passed) failed += (failed.empty() ? "" : ", ") + finding.rule;
  }
  return failed.empty() ? "VALID" : "INVALID: " + failed;
}

std::string ObjectivesText(const Verdict& verdict) {
  if (verdict.objectives.empty()) return "no objectives";
  const auto missed = std::count_if(verdict.objectives.begin(), verdict.objectives.end(),
                                    [](const Finding& finding) { return !finding.passed; });
  return missed == 0 ? "objectives met"
                     : "objectives MISSED: " + std::to_string(missed) + " of " +
                           std::to_string(verdict.objectives.size());
}

}  // namespace castor::load

#include "client/load/output/summary.h"

#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>
#include <vector>

#include "client/cli/report.h"
#include "client/load/output/figures.h"
#include "client/load/output/text.h"

namespace castor::load {
namespace {

using TextTable = std::vector<std::vector<std::string>>;

constexpr size_t kNameCells = 32;      // of classes and endpoints in tables
constexpr size_t kMessageCells = 100;  // of errors' messages
constexpr size_t kMaxMessages = 20;

std::string NameText(const std::string& name) { return FitText(name, kNameCells); }

// A title and its table; nothing where the table has no row but its head.
std::string SectionText(const std::string& title, const TextTable& cells) {
  return cells.size() < 2 ? "" : "\n" + title + "\n" + cli::FormatTable(cells);
}

std::string FindingsText(const Verdict& verdict) {
  TextTable cells;
  const auto add = [&cells](const std::vector<Finding>& findings, const char* passed,
                            const char* failed) {
    for (const bool wanted : {false, true}) {  // what failed stands first
      for (const Finding& finding : findings) {
        if (finding.passed != wanted) continue;
        cells.push_back({finding.passed ? passed : failed, FitText(finding.rule, kNameCells),
                         CleanText(finding.text)});
      }
    }
  };
  add(verdict.objectives, "met", "MISSED");
  add(verdict.validity, "ok", "FAILED");
  return cli::FormatTable(cells);
}

std::vector<std::string> OutcomeRow(const Cell& cell, double seconds) {
  const auto ok = static_cast<double>(cell.of(Outcome::kOk));
  std::vector<std::string> row = {CountText(cell.planned())};
  for (int i = 0; i < kOutcomes; ++i) row.push_back(CountText(cell.of(static_cast<Outcome>(i))));
  row.push_back(seconds > 0 ? RateText(ok / seconds) : "-");
  row.push_back(seconds > 0 ? RateText(static_cast<double>(cell.good) / seconds) : "-");
  row.push_back(PercentText(static_cast<double>(cell.good), static_cast<double>(cell.planned())));
  return row;
}

const std::vector<std::string> kOutcomeHead = {"PLANNED",   "OK",     "REFUSED", "EXPIRED",
                                               "CANCELLED", "FAILED", "DROPPED", "OK/S",
                                               "GOOD/S",    "GOOD"};

template <typename... Names>
std::vector<std::string> Joined(const std::vector<std::string>& rest, Names... names) {
  std::vector<std::string> row = {names...};
  row.insert(row.end(), rest.begin(), rest.end());
  return row;
}

std::string OutcomesText(const RunData& run, const std::vector<Cell>& classes) {
  const double seconds = run.MeasuredSeconds();
  TextTable cells = {Joined(kOutcomeHead, "CLASS")};
  for (size_t i = 0; i < classes.size(); ++i) {
    cells.push_back(Joined(OutcomeRow(classes[i], seconds), NameText(ClassName(run, i))));
  }
  if (classes.size() > 1) {
    cells.push_back(Joined(OutcomeRow(run.Total(), seconds), std::string("all")));
  }
  return SectionText("Requests, by class", cells);
}

std::vector<std::string> QuantileRow(const Histogram& histogram) {
  std::vector<std::string> row;
  for (const double quantile : kShownQuantiles) {
    row.push_back(histogram.empty() ? "-"
                                    : TimeText(static_cast<double>(histogram.ValueAt(quantile))));
  }
  row.push_back(histogram.empty() ? "-" : TimeText(static_cast<double>(histogram.max())));
  return row;
}

std::string LatenciesText(const RunData& run, const std::vector<Cell>& classes) {
  TextTable cells = {{"CLASS", "TIME", "P50", "P90", "P99", "P99.9", "MAX"}};
  for (size_t i = 0; i < classes.size(); ++i) {
    const Cell& cell = classes[i];
    const std::string name = NameText(ClassName(run, i));
    cells.push_back(Joined(QuantileRow(cell.intended), name, "from intended"));
    cells.push_back(Joined(QuantileRow(cell.service), "", "from sending"));
    cells.push_back(Joined(QuantileRow(cell.lag), "", "client's lag"));
    if (!cell.refusal.empty()) {
      cells.push_back(Joined(QuantileRow(cell.refusal), "", "to a refusal"));
    }
  }
  return SectionText("Latency of OK answers", cells);
}

std::string EndpointsText(const RunData& run) {
  const size_t endpoints = run.cells.empty() ? 0 : run.cells[0].size();
  if (endpoints < 2) return "";
  TextTable cells = {Joined(kOutcomeHead, "ENDPOINT")};
  cells[0].insert(cells[0].end(), {"P50", "P99"});
  for (size_t i = 0; i < endpoints; ++i) {
    const Cell cell = run.OfEndpoint(i);
    cells.push_back(
        Joined(OutcomeRow(cell, run.MeasuredSeconds()), NameText(EndpointName(run, i))));
    const std::vector<std::string> quantiles = QuantileRow(cell.intended);
    cells.back().insert(cells.back().end(), {quantiles[0], quantiles[2]});
  }
  return SectionText("Requests, by endpoint", cells);
}

std::string StagesTable(const RunData& run, const std::vector<Cell>& classes) {
  TextTable cells = {{"CLASS"}};
  for (const StageName& stage : kStages) cells[0].push_back(stage.name);
  cells[0].insert(cells[0].end(), {"server, all", "predicted within 25%"});
  for (std::string& head : cells[0]) {
    for (char& c : head) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  for (size_t i = 0; i < classes.size(); ++i) {
    const Stages& stages = classes[i].stages;
    if (stages.server.empty()) continue;
    std::vector<std::string> row = {NameText(ClassName(run, i))};
    const auto add = [&row](const Histogram& histogram) {
      row.push_back(TimeText(histogram.mean()) + ", " +
                    TimeText(static_cast<double>(histogram.ValueAt(0.99))));
    };
    for (const StageName& stage : kStages) add(stages.*stage.histogram);
    add(stages.server);
    row.push_back(PercentText(static_cast<double>(stages.predicted_within),
                              static_cast<double>(stages.predicted)));
    cells.push_back(std::move(row));
  }
  return SectionText("Where the time went, by the server's account: mean, p99", cells);
}

std::string VerificationText(const RunData& run, const std::vector<Cell>& classes) {
  TextTable cells = {{"CLASS", "COMPARED", "EQUAL", "DIFFERENT", "RECOMPUTED", "ERROR P50",
                      "ERROR P99", "ERROR MAX"}};
  for (size_t i = 0; i < classes.size(); ++i) {
    const Verified& verified = classes[i].verified;
    if (verified.asked == 0 && verified.recomputed == 0) continue;
    std::vector<std::string> row = {NameText(ClassName(run, i)), CountText(verified.asked),
                                    CountText(verified.equal), CountText(verified.different),
                                    CountText(verified.recomputed)};
    const Histogram& error = verified.error_e9;
    for (const int64_t value : {error.ValueAt(0.5), error.ValueAt(0.99), error.max()}) {
      row.push_back(error.empty() ? "-" : ErrorText(static_cast<double>(value)));
    }
    cells.push_back(std::move(row));
  }
  return SectionText(
      "Verification: answers beside the same request sent alone, and computed exactly", cells);
}

std::string MessagesText(const RunData& run, const std::vector<Cell>& classes) {
  std::vector<std::tuple<int64_t, size_t, std::string>> messages;
  for (size_t i = 0; i < classes.size(); ++i) {
    for (const auto& [text, count] : classes[i].messages) messages.emplace_back(count, i, text);
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const auto& a, const auto& b) { return std::get<0>(a) > std::get<0>(b); });
  TextTable cells = {{"COUNT", "CLASS", "MESSAGE"}};
  for (const auto& [count, cls, text] : messages) {
    if (cells.size() > kMaxMessages) break;
    cells.push_back(
        {CountText(count), NameText(ClassName(run, cls)), FitText(text, kMessageCells)});
  }
  std::string section = SectionText("Errors", cells);
  if (messages.size() > kMaxMessages) {
    section += "and " + std::to_string(messages.size() - kMaxMessages) +
               " more, in the JSON and HTML reports\n";
  }
  return section;
}

std::string SettingText(const RunData& run) {
  cli::Rows rows = {
      {"load",
       LoopText(run) + ", " + SecondsText(run.asked_seconds) + ", begun " + CleanText(run.begun)},
      {"versions", "castor-load " + CleanText(run.client_version) + ", server " +
                       (run.server_version.empty() ? "unknown" : CleanText(run.server_version))}};
  for (size_t i = 0; i < run.clients.size(); ++i) {
    const ClientLoad& client = run.clients[i];
    rows.emplace_back(
        run.clients.size() == 1 ? "client" : "client " + std::to_string(i + 1),
        SecondsText(client.seconds) + ", " +
            (client.seconds > 0 ? PercentText(client.cpu_seconds, client.seconds) : "-") +
            " of a core on " + std::to_string(client.threads) + " threads, the busiest " +
            PercentText(client.busiest_thread, 1) +
            (client.calibrated_rate > 0
                 ? ", can send " + RateText(client.calibrated_rate) + " requests/s"
                 : "") +
            (client.unfinished > 0 ? ", " + CountText(client.unfinished) + " requests never ended"
                                   : ""));
  }
  return "\n" + cli::FormatRows(rows);
}

}  // namespace

std::string SummaryText(const RunData& run, const Verdict& verdict) {
  const std::vector<Cell> classes = ByClass(run);
  return ValidityText(verdict) + "; " + ObjectivesText(verdict) + "\n" + FindingsText(verdict) +
         OutcomesText(run, classes) + LatenciesText(run, classes) + EndpointsText(run) +
         StagesTable(run, classes) + VerificationText(run, classes) + MessagesText(run, classes) +
         SettingText(run);
}

}  // namespace castor::load

#include "client/load/report/summary.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>
#include <vector>

#include "client/cli/report.h"
#include "client/cli/text.h"

namespace castor::load {
namespace {

using cli::CleanText;
using cli::CountText;
using cli::FitText;
using cli::FormatReal;
using cli::RateText;
using cli::TimeText;
using TextTable = std::vector<std::vector<std::string>>;

constexpr size_t kNameCells = 32;      // of classes and endpoints in tables
constexpr size_t kMessageCells = 100;  // of errors' messages
constexpr size_t kMaxMessages = 20;

// A title and its table; nothing where the table has no row but its head.
std::string Section(const std::string& title, const TextTable& cells) {
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

void AddOutcomes(const std::string& name, const Cell& cell, double seconds, TextTable* cells) {
  std::vector<std::string>& row = cells->emplace_back();
  row = {FitText(name, kNameCells), CountText(cell.planned())};
  for (const int64_t count : cell.outcomes) row.push_back(CountText(count));
  const auto rate = [&](int64_t count) {
    return seconds > 0 ? RateText(static_cast<double>(count) / seconds) : "-";
  };
  row.push_back(rate(cell.of(Outcome::kOk)));
  row.push_back(rate(cell.good));
  row.push_back(PercentText(static_cast<double>(cell.good), static_cast<double>(cell.planned())));
}

std::string OutcomesText(const RunData& run) {
  const std::vector<std::string> head = {"",        "PLANNED",   "OK",     "REFUSED",
                                         "EXPIRED", "CANCELLED", "FAILED", "DROPPED",
                                         "OK/S",    "GOOD/S",    "GOOD"};
  const double seconds = run.MeasuredSeconds();
  TextTable classes = {head}, endpoints = {head};
  for (size_t i = 0; i < run.classes.size(); ++i) {
    AddOutcomes(run.classes[i], run.OfClass(i), seconds, &classes);
  }
  if (run.classes.size() > 1) AddOutcomes("all", run.Total(), seconds, &classes);
  for (size_t i = 0; run.endpoints.size() > 1 && i < run.endpoints.size(); ++i) {
    AddOutcomes(run.endpoints[i], run.OfEndpoint(i), seconds, &endpoints);
  }
  return Section("Requests, by class", classes) + Section("Requests, by endpoint", endpoints);
}

std::string LatenciesText(const RunData& run) {
  TextTable cells = {{"CLASS", "TIME", "MEAN", "P50", "P90", "P99", "P99.9", "MAX"}};
  const auto add = [&](const std::string& name, const char* what, const Histogram& histogram) {
    std::vector<std::string> row = {name, what};
    const auto time = [&](double ns) { row.push_back(histogram.empty() ? "-" : TimeText(ns)); };
    time(histogram.mean());
    for (const double quantile : {0.5, 0.9, 0.99, 0.999}) {
      time(static_cast<double>(histogram.ValueAt(quantile)));
    }
    time(static_cast<double>(histogram.max()));
    cells.push_back(std::move(row));
  };
  for (size_t i = 0; i < run.classes.size(); ++i) {
    const Cell cell = run.OfClass(i);
    add(FitText(run.classes[i], kNameCells), "from intended", cell.intended);
    add("", "from sending", cell.service);
    add("", "client's lag", cell.lag);
  }
  return Section("Latency of OK answers", cells);
}

std::string StagesText(const RunData& run) {
  TextTable cells = {
      {"CLASS", "QUEUE", "COMPUTE", "SERVER, ALL", "NETWORK", "PREDICTED WITHIN 25%", "KERNELS"}};
  for (size_t i = 0; i < run.classes.size(); ++i) {
    const Cell cell = run.OfClass(i);
    const Stages& stages = cell.stages;
    if (stages.server.empty()) continue;
    std::vector<std::string> row = {FitText(run.classes[i], kNameCells)};
    for (const Histogram* histogram :
         {&stages.queue, &stages.compute, &stages.server, &stages.network}) {
      row.push_back(TimeText(histogram->mean()) + ", " +
                    TimeText(static_cast<double>(histogram->ValueAt(0.99))));
    }
    row.push_back(PercentText(static_cast<double>(stages.predicted_within),
                              static_cast<double>(stages.predicted)));
    std::string kernels;
    for (const auto& [name, count] : cell.kernels) {
      kernels += (kernels.empty() ? "" : ", ") + name + " " + CountText(count);
    }
    row.push_back(CleanText(kernels));
    cells.push_back(std::move(row));
  }
  return Section("Where the time went, by the server's account: mean, p99", cells);
}

std::string MessagesText(const RunData& run) {
  std::vector<std::tuple<int64_t, size_t, std::string>> messages;
  for (size_t i = 0; i < run.classes.size(); ++i) {
    for (const auto& [text, count] : run.OfClass(i).messages) messages.emplace_back(count, i, text);
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const auto& a, const auto& b) { return std::get<0>(a) > std::get<0>(b); });
  TextTable cells = {{"COUNT", "CLASS", "MESSAGE"}};
  for (const auto& [count, cls, text] : messages) {
    if (cells.size() > kMaxMessages) break;
    cells.push_back(
        {CountText(count), FitText(run.classes[cls], kNameCells), FitText(text, kMessageCells)});
  }
  return Section("Errors", cells);
}

std::string SettingText(const RunData& run) {
  cli::Rows rows = {
      {"load", LoopText(run) + ", " + FormatReal(run.asked_seconds, "%.4g s") + ", seed " +
                   std::to_string(run.seed) + ", begun " + CleanText(run.begun)},
      {"versions", "castor-load " + CleanText(run.client_version) + ", server " +
                       (run.server_version.empty() ? "unknown" : CleanText(run.server_version))}};
  for (const ClientLoad& client : run.clients) {
    rows.emplace_back(client.shares == 1 ? "client" : "client " + std::to_string(client.share),
                      (client.seconds > 0 ? PercentText(client.cpu_seconds, client.seconds) : "-") +
                          " of a core, the busiest thread " +
                          PercentText(client.busiest_thread, 1));
  }
  return "\n" + cli::FormatRows(rows);
}

}  // namespace

std::string PercentText(double part, double whole) {
  if (whole == 0) return "-";
  const double percent = 100 * part / whole;
  if (percent == 0 || percent == 100) return FormatReal(percent, "%.0f%%");
  if (percent < 0.0001) return "<0.0001%";
  if (percent < 1) return FormatReal(percent, "%.2g%%");
  for (const char* format : {"%.1f%%", "%.2f%%", "%.3f%%", "%.4f%%", "%.5f%%"}) {
    const std::string text = FormatReal(percent, format);
    if (percent > 100 || std::strtod(text.c_str(), nullptr) < 100) return text;
  }
  return "99.99999%";
}

std::string LoopText(const RunData& run) {
  return run.open_loop ? "open loop, " + RateText(run.asked_rate) + " requests/s" : "closed loop";
}

std::string SummaryText(const RunData& run, const Verdict& verdict) {
  return ValidityText(verdict) + "; " + ObjectivesText(verdict) + "\n" + FindingsText(verdict) +
         OutcomesText(run) + LatenciesText(run) + StagesText(run) + MessagesText(run) +
         SettingText(run);
}

}  // namespace castor::load

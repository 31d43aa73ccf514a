#include <absl/strings/ascii.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "client/cli/report.h"
#include "client/load/report/report.h"
#include "client/load/results/statistics.h"

namespace castor::load {
namespace {

using cli::CountText;
using cli::FormatReal;
using cli::RateText;
using Row = Table::Row;

constexpr size_t kMostCells = 100;  // columns of a cell in a terminal, except findings
constexpr size_t kMostMessages = 32;

std::string Time(const Histogram& histogram, double ns) {
  return histogram.empty() ? "-" : cli::TimeText(ns);
}
std::string Quantile(const Histogram& histogram, double quantile) {
  const bool few = histogram.count() < RequestsNeeded(quantile, Rules().confidence);
  return Time(histogram, static_cast<double>(histogram.ValueAt(quantile))) +
         (few && !histogram.empty() ? "?" : "");
}

// Empty without rows.
std::string TextOf(const Table& table, size_t most_cells = kMostCells) {
  if (table.rows.empty()) return "";
  std::vector<Row> cells = {table.head};
  for (std::string& name : cells[0]) absl::AsciiStrToUpper(&name);
  for (const Row& row : table.rows) {
    Row& fitted = cells.emplace_back();
    for (const std::string& cell : row) fitted.push_back(cli::FitText(cell, most_cells));
  }
  return "\n" + table.caption + "\n" + cli::FormatTable(std::move(cells));
}

}  // namespace

Table FindingsTable(const Verdict& verdict) {
  Table table = {"Objectives, and rules of validity", {"", "rule", "finding"}, 3};
  const auto add = [&](const std::vector<Finding>& findings, const char* passed,
                       const char* failed) {
    for (const bool wanted : {false, true}) {
      for (const Finding& finding : findings) {
        if (finding.passed != wanted) continue;
        table.rows.push_back({wanted ? passed : failed, finding.rule, finding.text});
      }
    }
  };
  add(verdict.objectives, "met", "MISSED");
  add(verdict.validity, "ok", "FAILED");
  return table;
}

Table OutcomeTable(const RunData& run) {
  Table table = {
      "By class, and by endpoint if there are several. Good answers are OK and within the class's "
      "latency limits",
      {"", "planned", "OK", "refused", "expired", "cancelled", "failed", "dropped", "OK/s",
       "good/s", "tokens/s", "good"}};
  const double seconds = run.MeasuredSeconds();
  const auto add = [&](const std::string& name, const Cell& cell) {
    Row& row = table.rows.emplace_back(Row{name, CountText(cell.planned())});
    for (const int64_t count : cell.outcomes) row.push_back(CountText(count));
    for (const int64_t count : {cell.of(Outcome::kOk), cell.good, cell.tokens}) {
      row.push_back(seconds > 0 ? RateText(static_cast<double>(count) / seconds) : "-");
    }
    row.push_back(PercentText(static_cast<double>(cell.good), static_cast<double>(cell.planned())));
  };
  for (size_t i = 0; i < run.classes.size(); ++i) add(run.classes[i], run.OfClass(i));
  if (run.classes.size() > 1) add("all", run.Total());
  for (size_t i = 0; run.endpoints.size() > 1 && i < run.endpoints.size(); ++i) {
    add(run.endpoints[i], run.OfEndpoint(i));
  }
  return table;
}

Table LatencyTable(const RunData& run) {
  Table table = {
      "Latency of OK answers, and lag of all sent requests; '?': too few requests to tell",
      {"class", "time", "count", "mean", "p50", "p90", "p99", "p99.9", "max"},
      2};
  for (size_t i = 0; i < run.classes.size(); ++i) {
    const Cell cell = run.OfClass(i);
    const std::pair<const char*, const Histogram*> times[] = {
        {"from the intended time", &cell.intended},
        {"from sending", &cell.service},
        {"client's lag", &cell.lag}};
    for (const auto& [what, histogram] : times) {
      Row& row = table.rows.emplace_back(Row{run.classes[i], what, CountText(histogram->count()),
                                             Time(*histogram, histogram->mean())});
      for (const double quantile : {0.5, 0.9, 0.99, 0.999}) {
        row.push_back(Quantile(*histogram, quantile));
      }
      row.push_back(Time(*histogram, static_cast<double>(histogram->max())));
    }
  }
  return table;
}

Table StageTable(const RunData& run) {
  Table table = {"Where the time went, as the server reports",
                 {"class", "", "queue", "compute", "server, all", "network"},
                 2};
  for (size_t i = 0; i < run.classes.size(); ++i) {
    const Stages stages = run.OfClass(i).stages;
    if (stages.server.empty()) continue;
    const auto add = [&](const char* name, const auto& figure) {
      Row& row = table.rows.emplace_back(Row{run.classes[i], name});
      for (const Histogram* histogram :
           {&stages.queue, &stages.compute, &stages.server, &stages.network}) {
        row.push_back(figure(*histogram));
      }
    };
    add("mean", [](const Histogram& histogram) { return Time(histogram, histogram.mean()); });
    add("p50", [](const Histogram& histogram) { return Quantile(histogram, 0.5); });
    add("p99", [](const Histogram& histogram) { return Quantile(histogram, 0.99); });
  }
  return table;
}

Table MessageTable(const RunData& run) {
  std::vector<std::pair<int64_t, Row>> messages;
  for (size_t i = 0; i < run.classes.size(); ++i) {
    for (const auto& [text, count] : run.OfClass(i).messages) {
      messages.push_back({count, {run.classes[i], text, CountText(count)}});
    }
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  messages.resize(std::min(messages.size(), kMostMessages));
  Table table = {"Errors, the most frequent first", {"class", "message", "count"}, 2};
  for (auto& message : messages) table.rows.push_back(std::move(message.second));
  return table;
}

Table SettingTable(const RunData& run) {
  Table table = {"Client and servers", {"", ""}, 2};
  table.rows = {{"load", LoopText(run) + ", " + FormatReal(run.asked_seconds, "%.4g s") +
                             ", seed " + std::to_string(run.seed) + ", begun " + run.begun},
                {"castor-load", run.client_version},
                {"server", run.server_version.empty() ? "unknown" : run.server_version}};
  if (!run.server_setting.empty()) table.rows.push_back({"served", run.server_setting});
  for (const std::string& endpoint : run.endpoints) table.rows.push_back({"endpoint", endpoint});
  for (const ClientLoad& client : run.clients) {
    table.rows.push_back({client.shares == 1 ? "client" : "client " + std::to_string(client.share),
                          PercentText(client.cpu_seconds, client.seconds) +
                              " of a core, the busiest thread " +
                              PercentText(client.busiest_thread, 1)});
  }
  std::string kernels;
  for (const auto& [name, count] : run.Total().kernels) {
    kernels += (kernels.empty() ? "" : ", ") + name + " " + CountText(count);
  }
  if (!kernels.empty()) table.rows.push_back({"kernels", kernels});
  return table;
}

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
  std::string text = ValidityText(verdict) + "; " + ObjectivesText(verdict) + "\n" +
                     TextOf(FindingsTable(verdict), 1000);
  for (const Table& table : {OutcomeTable(run), LatencyTable(run), StageTable(run),
                             MessageTable(run), SettingTable(run)}) {
    text += TextOf(table);
  }
  return text;
}

}  // namespace castor::load

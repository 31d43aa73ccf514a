#include "client/load/output/html_tables.h"

#include <algorithm>
#include <utility>

#include "client/load/output/figures.h"
#include "client/load/output/markup.h"
#include "client/load/output/text.h"

namespace castor::load {
namespace {

TableCell CountCell(int64_t count) { return {CountText(count), count == 0 ? "zero" : ""}; }

TableCell DurationCell(const Histogram& histogram, double ns) {
  return {histogram.empty() ? "–" : TimeSign(ns), "nowrap"};
}

TableCell QuantileCell(const Histogram& histogram, double quantile) {
  return DurationCell(histogram, static_cast<double>(histogram.ValueAt(quantile)));
}

TableCell ShareCell(int64_t part, int64_t whole) {
  return {PercentText(static_cast<double>(part), static_cast<double>(whole)), ""};
}

TableCell PerSecondCell(int64_t count, const RunData& run) {
  const double seconds = run.MeasuredSeconds();
  return {seconds > 0 ? RateText(static_cast<double>(count) / seconds) : "–", ""};
}

bool Is(const TableCell& cell, std::string_view name) {
  return cell.classes.find(name) != std::string::npos;
}

std::vector<std::string> OutcomeHead() {
  std::vector<std::string> head = {"planned"};
  for (int i = 0; i < kOutcomes; ++i) head.emplace_back(NameOf(static_cast<Outcome>(i)));
  head[1] = "OK";
  return head;
}

void AddOutcomes(const Cell& cell, std::vector<TableCell>* cells) {
  cells->push_back(CountCell(cell.planned()));
  for (int i = 0; i < kOutcomes; ++i) cells->push_back(CountCell(cell.of(static_cast<Outcome>(i))));
}

// "vanilla 12,000, cast 31"
std::string KernelsText(const Cell& cell) {
  std::string text;
  for (const auto& [name, count] : cell.kernels) {
    text += (text.empty() ? "" : ", ") + name;
    if (cell.kernels.size() > 1) text += " " + CountText(count);
  }
  return text.empty() ? "–" : text;
}

}  // namespace

std::string HtmlTable(const std::string& caption, const std::vector<std::string>& head,
                      const std::vector<TableRow>& rows) {
  if (rows.empty()) return "";
  Markup table;
  // Wide tables scroll in their own frame, which the keyboard can reach.
  table.Open("div",
             {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", caption}});
  table.Open("table")
      .Open("caption")
      .Put("span", caption)
      .Close()
      .NewLine()
      .Open("thead")
      .Open("tr");
  for (size_t i = 0; i < head.size(); ++i) {
    const TableCell& below = rows[0].cells[i];
    const bool left = i == 0 || Is(below, "text") || Is(below, "prose");
    table.Put("th", head[i], {{"scope", "col"}, {"class", left ? "text" : "nowrap"}});
  }
  table.Close().Close().NewLine().Open("tbody").NewLine();
  for (const TableRow& row : rows) {
    table.Open("tr", {{"class", row.classes}});
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const TableCell& cell = row.cells[i];
      if (i == 0) {
        table.Put("th", cell.text, {{"scope", "row"}, {"class", cell.classes}});
      } else {
        table.Put("td", cell.text, {{"class", cell.classes}});
      }
    }
    table.Close().NewLine();
  }
  table.Close().Close().Close().NewLine();
  return table.whole();
}

std::string OverviewTable(const RunData& run) {
  const std::vector<Cell> classes = ByClass(run);
  std::vector<TableRow> rows;
  const auto add = [&](const std::string& name, const Cell& cell, bool sum) {
    TableRow row{.cells = {{name, ""},
                           CountCell(cell.planned()),
                           ShareCell(cell.of(Outcome::kOk), cell.planned()),
                           PerSecondCell(cell.of(Outcome::kOk), run),
                           PerSecondCell(cell.good, run),
                           ShareCell(cell.good, cell.planned())},
                 .classes = sum ? "sum" : ""};
    // A percentile over classes that do different things says nothing.
    for (const double quantile : {0.5, 0.99, 0.999}) {
      row.cells.push_back(sum ? TableCell{"", ""} : QuantileCell(cell.intended, quantile));
    }
    rows.push_back(std::move(row));
  };
  for (size_t i = 0; i < classes.size(); ++i) add(ClassName(run, i), classes[i], false);
  if (classes.size() > 1) add("all", run.Total(), true);
  return HtmlTable(
      "By class: good answers are OK and within the class's latency limits; latency "
      "counts from the intended time",
      {"class", "planned", "OK", "OK/s", "good/s", "good", "median", "p99", "p99.9"}, rows);
}

std::string LatencyTable(const RunData& run) {
  std::vector<TableRow> rows;
  const std::vector<Cell> classes = ByClass(run);
  for (size_t i = 0; i < classes.size(); ++i) {
    const Cell& cell = classes[i];
    const std::pair<const char*, const Histogram*> times[] = {
        {"from the intended time", &cell.intended},
        {"from sending", &cell.service},
        {"client's lag", &cell.lag},
        {"sending to refusal", &cell.refusal}};
    for (const auto& [name, histogram] : times) {
      if (histogram == &cell.refusal && histogram->empty()) continue;
      const bool first = histogram == &cell.intended;
      TableRow row{.cells = {{first ? ClassName(run, i) : "", ""},
                             {name, "text nowrap"},
                             CountCell(histogram->count()),
                             DurationCell(*histogram, histogram->mean())},
                   .classes = first ? "" : "more"};
      for (const double quantile : kShownQuantiles) {
        row.cells.push_back(QuantileCell(*histogram, quantile));
      }
      row.cells.push_back(DurationCell(*histogram, static_cast<double>(histogram->max())));
      rows.push_back(std::move(row));
    }
  }
  return HtmlTable("Latency of OK answers, and the lag of all that were sent",
                   {"class", "time", "count", "mean", "median", "p90", "p99", "p99.9", "max"},
                   rows);
}

std::string OutcomeTable(const RunData& run) {
  std::vector<std::string> head = OutcomeHead();
  head.insert(head.begin(), "class");
  head.insert(head.end(), {"tokens/s", "kernels that answered"});
  std::vector<TableRow> rows;
  const auto add = [&](const std::string& name, const Cell& cell, bool sum) {
    TableRow row{.cells = {{name, ""}}, .classes = sum ? "sum" : ""};
    AddOutcomes(cell, &row.cells);
    row.cells.push_back(PerSecondCell(cell.tokens, run));
    row.cells.push_back({sum ? "" : KernelsText(cell), "text"});
    rows.push_back(std::move(row));
  };
  const std::vector<Cell> classes = ByClass(run);
  for (size_t i = 0; i < classes.size(); ++i) add(ClassName(run, i), classes[i], false);
  if (classes.size() > 1) add("all", run.Total(), true);
  return HtmlTable("How requests ended, by class", head, rows);
}

std::string EndpointTable(const RunData& run) {
  if (run.cells.empty() || run.cells[0].size() < 2) return "";
  std::vector<std::string> head = OutcomeHead();
  head.insert(head.begin(), {"endpoint", "class"});
  head.insert(head.end(), {"median", "p99"});
  std::vector<TableRow> rows;
  for (size_t endpoint = 0; endpoint < run.cells[0].size(); ++endpoint) {
    for (size_t cls = 0; cls < run.cells.size(); ++cls) {
      const Cell& cell = run.cells[cls][endpoint];
      TableRow row{.cells = {{cls == 0 ? EndpointName(run, endpoint) : "", ""},
                             {ClassName(run, cls), "text"}},
                   .classes = cls == 0 ? "" : "more"};
      AddOutcomes(cell, &row.cells);
      row.cells.push_back(QuantileCell(cell.intended, 0.5));
      row.cells.push_back(QuantileCell(cell.intended, 0.99));
      rows.push_back(std::move(row));
    }
  }
  return HtmlTable("How requests ended, by endpoint and class", head, rows);
}

std::string MessageTable(const RunData& run) {
  struct Message {
    int64_t count;
    std::string cls, text;
  };
  std::vector<Message> messages;
  const std::vector<Cell> classes = ByClass(run);
  for (size_t i = 0; i < classes.size(); ++i) {
    for (const auto& [text, count] : classes[i].messages) {
      messages.push_back({count, ClassName(run, i), text});
    }
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message& a, const Message& b) { return a.count > b.count; });
  std::vector<TableRow> rows;
  for (const Message& message : messages) {
    rows.push_back(
        {.cells = {{message.cls, ""}, CountCell(message.count), {message.text, "prose"}}});
  }
  return HtmlTable("Errors by message", {"class", "count", "message"}, rows);
}

std::string StageTable(const RunData& run) {
  std::vector<std::string> head = {"class", ""};
  for (const StageName& stage : kStages) head.emplace_back(stage.name);
  head.insert(head.end(), {"server, all", "predicted within 25%"});
  std::vector<TableRow> rows;
  const std::vector<Cell> classes = ByClass(run);
  for (size_t i = 0; i < classes.size(); ++i) {
    const Stages& stages = classes[i].stages;
    if (stages.server.empty()) continue;
    const auto add = [&](const char* name, const auto& figure) {
      const bool first = std::string_view(name) == "mean";
      TableRow row{.cells = {{first ? ClassName(run, i) : "", ""}, {name, "text"}},
                   .classes = first ? "" : "more"};
      for (const StageName& stage : kStages) row.cells.push_back(figure(stages.*stage.histogram));
      row.cells.push_back(figure(stages.server));
      row.cells.push_back(first && stages.predicted > 0
                              ? ShareCell(stages.predicted_within, stages.predicted)
                              : TableCell{first ? "–" : "", ""});
      rows.push_back(std::move(row));
    };
    add("mean",
        [](const Histogram& histogram) { return DurationCell(histogram, histogram.mean()); });
    add("p50", [](const Histogram& histogram) { return QuantileCell(histogram, 0.5); });
    add("p99", [](const Histogram& histogram) { return QuantileCell(histogram, 0.99); });
  }
  return HtmlTable("Stages of OK answers, as the server's answers tell them", head, rows);
}

std::string VerificationTable(const RunData& run) {
  std::vector<TableRow> rows;
  const std::vector<Cell> classes = ByClass(run);
  for (size_t i = 0; i < classes.size(); ++i) {
    const Verified& verified = classes[i].verified;
    if (verified.asked == 0 && verified.recomputed == 0) continue;
    const Histogram& error = verified.error_e9;
    TableRow row{.cells = {{ClassName(run, i), ""},
                           CountCell(verified.asked),
                           CountCell(verified.equal),
                           CountCell(verified.different),
                           CountCell(verified.recomputed)}};
    if (verified.different > 0) row.cells[3].classes = "missed";
    for (const int64_t value :
         {error.ValueAt(0.5), error.ValueAt(0.9), error.ValueAt(0.99), error.max()}) {
      row.cells.push_back({error.empty() ? "–" : ErrorText(static_cast<double>(value)), "nowrap"});
    }
    rows.push_back(std::move(row));
  }
  return HtmlTable(
      "Answers beside those to the same request sent alone, and the relative error "
      "beside an exact computation",
      {"class", "compared", "equal bytes", "different", "recomputed", "median error", "p90", "p99",
       "max"},
      rows);
}

std::string ClientTable(const RunData& run) {
  std::vector<TableRow> rows;
  for (size_t i = 0; i < run.clients.size(); ++i) {
    const ClientLoad& client = run.clients[i];
    rows.push_back(
        {.cells = {{std::to_string(i + 1), ""},
                   {SecondsText(client.seconds), "nowrap"},
                   {std::to_string(client.threads), ""},
                   {client.seconds > 0 ? PercentText(client.cpu_seconds, client.seconds) : "–", ""},
                   {PercentText(client.busiest_thread, 1), ""},
                   {client.calibrated_rate > 0 ? RateText(client.calibrated_rate) : "–", ""},
                   CountCell(client.unfinished)}});
  }
  return HtmlTable("The load tester itself, by worker: processor time in shares of one core",
                   {"worker", "measured", "threads", "processor", "busiest thread",
                    "can send, requests/s", "never ended"},
                   rows);
}

std::string FindingsTable(const std::string& caption, const std::vector<Finding>& findings,
                          const std::string& passed, const std::string& failed) {
  std::vector<TableRow> rows;
  for (const Finding& finding : findings) {
    rows.push_back({.cells = {{finding.rule, "nowrap"},
                              {finding.passed ? "✓ " + passed : "✗ " + failed,
                               finding.passed ? "text passed" : "text missed"},
                              {finding.text, "prose"}}});
  }
  return HtmlTable(caption, {"rule", "", "finding"}, rows);
}

}  // namespace castor::load

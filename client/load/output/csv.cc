#include "client/load/output/csv.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "client/cli/report.h"
#include "client/load/output/figures.h"
#include "client/load/output/text.h"
#include "client/load/workload/objective.h"

namespace castor::load {
namespace {

std::string Field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string NameField(const std::string& name) {
  std::string clean = CleanText(name);
  if (!clean.empty() && std::string_view("=+-@\t").find(clean[0]) != std::string_view::npos) {
    clean.insert(0, "'");
  }
  return clean;
}

std::string WholeField(double value) { return cli::FormatReal(value, "%.0f"); }
std::string RealField(double value) { return cli::FormatReal(value, "%.6g"); }
std::string MicrosecondsField(double nanoseconds) { return WholeField(nanoseconds / 1000); }

// One column of one row. Collected in pairs, so that a name and its value stand on one line.
using Columns = std::vector<std::pair<std::string, std::string>>;

std::string QuantileField(const Histogram& histogram, double quantile) {
  if (histogram.empty()) return "";
  return MicrosecondsField(static_cast<double>(histogram.ValueAt(quantile)));
}

std::string GreatestField(const Histogram& histogram) {
  return histogram.empty() ? "" : MicrosecondsField(static_cast<double>(histogram.max()));
}

int64_t InferencesOf(const Cell& cell) {
  return cell.sequences > 0 ? cell.sequences : cell.of(Outcome::kOk);
}

void AddPerfAnalyzer(const RunData& run, const Cell& cell, double seconds, Columns* columns) {
  const auto ok = static_cast<double>(cell.of(Outcome::kOk));
  const double mean_ns = cell.service.mean();
  if (run.open_loop) {
    columns->emplace_back("Request Rate", RealField(static_cast<double>(cell.planned()) / seconds));
  } else {  // Little's law
    columns->emplace_back("Concurrency", RealField(ok / seconds * mean_ns / 1e9));
  }
  columns->emplace_back("Inferences/Second",
                        RealField(static_cast<double>(InferencesOf(cell)) / seconds));
  columns->emplace_back("Client Send", "0");
  const Stages& stages = cell.stages;
  const bool told = !stages.server.empty();
  const auto mean = [told](const Histogram& histogram) {
    return told ? MicrosecondsField(histogram.mean()) : "";
  };
  const double accounted =
      stages.queue.mean() + stages.copy_in.mean() + stages.compute.mean() + stages.copy_out.mean();
  columns->emplace_back("Network+Server Send/Recv",
                        told ? MicrosecondsField(std::max(0.0, mean_ns - accounted)) : "");
  columns->emplace_back("Server Queue", mean(stages.queue));
  columns->emplace_back("Server Compute Input", mean(stages.copy_in));
  columns->emplace_back("Server Compute Infer", mean(stages.compute));
  columns->emplace_back("Server Compute Output", mean(stages.copy_out));
  columns->emplace_back("Client Recv", "0");
  for (const double quantile : {0.5, 0.9, 0.95, 0.99}) {
    columns->emplace_back(QuantileName(quantile) + " latency",
                          QuantileField(cell.service, quantile));
  }
  columns->emplace_back("Avg latency", cell.service.empty() ? "" : MicrosecondsField(mean_ns));
}

void AddOurs(const RunData& run, size_t cls, size_t endpoint, double seconds, Columns* columns) {
  const Cell& cell = run.cells[cls][endpoint];
  columns->emplace_back("Class", NameField(ClassName(run, cls)));
  columns->emplace_back("Endpoint", NameField(EndpointName(run, endpoint)));
  columns->emplace_back("Seconds", RealField(seconds));
  columns->emplace_back("Planned", std::to_string(cell.planned()));
  for (int i = 0; i < kOutcomes; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    std::string name = outcome == Outcome::kOk ? "OK" : NameOf(outcome);
    name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
    columns->emplace_back(name, std::to_string(cell.of(outcome)));
  }
  columns->emplace_back("Good", std::to_string(cell.good));
  columns->emplace_back("OK/Second",
                        RealField(static_cast<double>(cell.of(Outcome::kOk)) / seconds));
  columns->emplace_back("Good/Second", RealField(static_cast<double>(cell.good) / seconds));
  const std::pair<const char*, const Histogram*> times[] = {{"intended", &cell.intended},
                                                            {"sending", &cell.service},
                                                            {"lag", &cell.lag},
                                                            {"refusal", &cell.refusal}};
  for (const auto& [name, histogram] : times) {
    for (const double quantile : kShownQuantiles) {
      columns->emplace_back(QuantileName(quantile) + " " + name + " us",
                            QuantileField(*histogram, quantile));
    }
    columns->emplace_back(std::string("max ") + name + " us", GreatestField(*histogram));
    columns->emplace_back(std::string("mean ") + name + " us",
                          histogram->empty() ? "" : MicrosecondsField(histogram->mean()));
  }
  const bool told = !cell.stages.server.empty();
  for (const StageName& stage : kStages) {
    const Histogram& histogram = cell.stages.*stage.histogram;
    columns->emplace_back(std::string("mean ") + stage.label + " us",
                          told ? MicrosecondsField(histogram.mean()) : "");
    columns->emplace_back(std::string("p99 ") + stage.label + " us",
                          told ? QuantileField(histogram, 0.99) : "");
  }
  columns->emplace_back("mean server us", told ? MicrosecondsField(cell.stages.server.mean()) : "");
  columns->emplace_back("p99 server us", told ? QuantileField(cell.stages.server, 0.99) : "");
  columns->emplace_back("Predicted", std::to_string(cell.stages.predicted));
  columns->emplace_back("Predicted within 25%", std::to_string(cell.stages.predicted_within));
  columns->emplace_back("Compared", std::to_string(cell.verified.asked));
  columns->emplace_back("Equal", std::to_string(cell.verified.equal));
  columns->emplace_back("Different", std::to_string(cell.verified.different));
  columns->emplace_back("Recomputed", std::to_string(cell.verified.recomputed));
  const Histogram& error = cell.verified.error_e9;
  columns->emplace_back(
      "p99 relative error",
      error.empty() ? "" : RealField(static_cast<double>(error.ValueAt(0.99)) / 1e9));
  columns->emplace_back("max relative error",
                        error.empty() ? "" : RealField(static_cast<double>(error.max()) / 1e9));
  columns->emplace_back("Tokens", std::to_string(cell.tokens));
  columns->emplace_back("Sequences", std::to_string(cell.sequences));
  columns->emplace_back("Request bytes", std::to_string(cell.request_bytes));
  columns->emplace_back("Answer bytes", std::to_string(cell.answer_bytes));
}

std::string Line(const Columns& columns, std::string std::pair<std::string, std::string>::*part) {
  std::string line;
  for (const auto& column : columns) line += (line.empty() ? "" : ",") + Field(column.*part);
  return line + "\r\n";
}

}  // namespace

std::string CsvText(const RunData& run) {
  const double measured = run.MeasuredSeconds();
  const double seconds = measured > 0 ? measured : 1;  // a run of no time has no requests
  std::vector<std::pair<double, Columns>> rows;
  for (size_t cls = 0; cls < run.cells.size(); ++cls) {
    for (size_t endpoint = 0; endpoint < run.cells[cls].size(); ++endpoint) {
      const Cell& cell = run.cells[cls][endpoint];
      Columns columns;
      AddPerfAnalyzer(run, cell, seconds, &columns);
      AddOurs(run, cls, endpoint, seconds, &columns);
      rows.emplace_back(static_cast<double>(InferencesOf(cell)), std::move(columns));
    }
  }
  if (rows.empty()) return "";
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  using Column = std::pair<std::string, std::string>;
  std::string text = Line(rows[0].second, &Column::first);
  for (const auto& [inferences, columns] : rows) text += Line(columns, &Column::second);
  return text;
}

}  // namespace castor::load

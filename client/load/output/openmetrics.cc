#include "client/load/output/openmetrics.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "client/cli/report.h"
#include "client/load/output/figures.h"
#include "client/load/output/text.h"

namespace castor::load {
namespace {

// Upper bounds in seconds: a small local call to the longest deadline, with twice as many where
// objectives usually lie.
constexpr double kBuckets[] = {0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01,
                               0.015,  0.02,    0.03,   0.05,  0.075, 0.1,   0.15,  0.2,    0.3,
                               0.5,    0.75,    1,      2,     5,     10,    30,    60};

using Labels = std::initializer_list<std::pair<const char*, std::string>>;

std::string LabelValue(const std::string& text) {
  std::string escaped;
  for (const char c : CleanText(text)) {
    if (c == '\n') {
      escaped += "\\n";
    } else {
      if (c == '\\' || c == '"') escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

std::string NumberText(double value) { return cli::FormatReal(value, "%.12g"); }

// The lines of one metric family after another.
class Exposition {
 public:
  // `unit` may be empty; where it is not, `name` ends with it.
  void Family(const std::string& name, const char* type, const char* unit, const char* help) {
    name_ = "castor_load_" + name;
    text_ += "# TYPE " + name_ + " " + type + "\n";
    if (*unit != '\0') text_ += "# UNIT " + name_ + " " + unit + "\n";
    text_ += "# HELP " + name_ + " " + help + "\n";
  }

  void Sample(const char* suffix, Labels labels, double value, const std::string& le = "") {
    std::string list;
    for (const auto& [label, content] : labels) {
      list += (list.empty() ? "" : ",") + std::string(label) + "=\"" + LabelValue(content) + "\"";
    }
    if (!le.empty()) list += (list.empty() ? "" : ",") + ("le=\"" + le + "\"");
    text_ +=
        name_ + suffix + (list.empty() ? "" : "{" + list + "}") + " " + NumberText(value) + "\n";
  }

  // A histogram of nanoseconds, as seconds.
  void Distribution(Labels labels, const Histogram& histogram) {
    const auto count = static_cast<double>(histogram.count());
    for (const double bound : kBuckets) {
      const auto above = histogram.CountAbove(static_cast<int64_t>(bound * 1e9 + 0.5));
      // "1.0": bounds are written as floating-point numbers.
      std::string le = NumberText(bound);
      if (le.find_first_of(".e") == std::string::npos) le += ".0";
      Sample("_bucket", labels, count - static_cast<double>(above), le);
    }
    Sample("_bucket", labels, count, "+Inf");
    Sample("_count", labels, count);
    Sample("_sum", labels, histogram.mean() * count / 1e9);
  }

  std::string Take() { return std::move(text_) + "# EOF\n"; }

 private:
  std::string name_, text_;
};

template <typename Visit>
void ForEachCell(const RunData& run, const Visit& visit) {
  for (size_t cls = 0; cls < run.cells.size(); ++cls) {
    for (size_t endpoint = 0; endpoint < run.cells[cls].size(); ++endpoint) {
      visit(ClassName(run, cls), EndpointName(run, endpoint), run.cells[cls][endpoint]);
    }
  }
}

struct Counter {
  const char *name, *unit, *help;
  int64_t (*value)(const Cell&);
};

constexpr Counter kCounters[] = {
    {"good_requests", "", "OK answers within all latency limits of their class.",
     [](const Cell& cell) { return cell.good; }},
    {"tokens", "", "Tokens in OK answers.", [](const Cell& cell) { return cell.tokens; }},
    {"sequences", "", "Sequences in OK answers.", [](const Cell& cell) { return cell.sequences; }},
    {"request_bytes", "bytes", "Bytes of requests sent.",
     [](const Cell& cell) { return cell.request_bytes; }},
    {"answer_bytes", "bytes", "Bytes of answers received.",
     [](const Cell& cell) { return cell.answer_bytes; }},
    {"verified_equal", "", "Answers with the bytes of the same request sent alone.",
     [](const Cell& cell) { return cell.verified.equal; }},
    {"verified_different", "", "Answers with other bytes than the same request sent alone.",
     [](const Cell& cell) { return cell.verified.different; }},
};

void AddRun(const RunData& run, const Verdict& verdict, Exposition* page) {
  page->Family("run", "info", "", "What ran, and when it began (UTC).");
  page->Sample("_info",
               {{"client_version", run.client_version},
                {"server_version", run.server_version},
                {"begun", run.begun}},
               1);
  page->Family("valid", "gauge", "", "1 if the run may be believed.");
  page->Sample("", {}, verdict.valid() ? 1 : 0);
  page->Family("rule_passed", "gauge", "", "1 for each rule of validity that the run passed.");
  for (const Finding& finding : verdict.validity) {
    page->Sample("", {{"rule", finding.rule}}, finding.passed ? 1 : 0);
  }
  page->Family("objectives_met", "gauge", "", "1 if all objectives were met.");
  page->Sample("", {}, verdict.met() ? 1 : 0);
  page->Family("measured_seconds", "gauge", "seconds", "How long the run was measured.");
  page->Sample("", {}, run.MeasuredSeconds());
}

void AddClients(const RunData& run, Exposition* page) {
  const auto family = [&](const char* name, const char* unit, const char* help, auto value) {
    page->Family(name, "gauge", unit, help);
    for (size_t i = 0; i < run.clients.size(); ++i) {
      page->Sample("", {{"worker", std::to_string(i + 1)}}, value(run.clients[i]));
    }
  };
  family("client_busiest_thread_ratio", "ratio", "Share of a core that a client's thread took.",
         [](const ClientLoad& client) { return client.busiest_thread; });
  family("client_cpu_seconds", "seconds", "Processor time of the client while it measured.",
         [](const ClientLoad& client) { return client.cpu_seconds; });
  family("client_unfinished_requests", "", "Requests that no answer ended.",
         [](const ClientLoad& client) { return static_cast<double>(client.unfinished); });
}

}  // namespace

std::string OpenMetricsText(const RunData& run, const Verdict& verdict) {
  Exposition page;
  AddRun(run, verdict, &page);

  page.Family("requests", "counter", "", "Planned requests by how they ended.");
  ForEachCell(run, [&page](const auto& cls, const auto& endpoint, const Cell& cell) {
    for (int i = 0; i < kOutcomes; ++i) {
      const auto outcome = static_cast<Outcome>(i);
      page.Sample("_total", {{"class", cls}, {"endpoint", endpoint}, {"outcome", NameOf(outcome)}},
                  static_cast<double>(cell.of(outcome)));
    }
  });
  for (const Counter& counter : kCounters) {
    page.Family(counter.name, "counter", counter.unit, counter.help);
    ForEachCell(run, [&](const auto& cls, const auto& endpoint, const Cell& cell) {
      page.Sample("_total", {{"class", cls}, {"endpoint", endpoint}},
                  static_cast<double>(counter.value(cell)));
    });
  }

  page.Family("latency_seconds", "histogram", "seconds",
              "Time to OK answers, from the intended time and from sending.");
  ForEachCell(run, [&page](const auto& cls, const auto& endpoint, const Cell& cell) {
    page.Distribution({{"class", cls}, {"endpoint", endpoint}, {"from", "intended"}},
                      cell.intended);
    page.Distribution({{"class", cls}, {"endpoint", endpoint}, {"from", "sending"}}, cell.service);
  });
  page.Family("lag_seconds", "histogram", "seconds", "From the intended time to sending.");
  ForEachCell(run, [&page](const auto& cls, const auto& endpoint, const Cell& cell) {
    page.Distribution({{"class", cls}, {"endpoint", endpoint}}, cell.lag);
  });
  page.Family("stage_seconds", "histogram", "seconds",
              "Time of OK answers by stage, by the server's account.");
  ForEachCell(run, [&page](const auto& cls, const auto& endpoint, const Cell& cell) {
    if (cell.stages.server.empty()) return;
    for (const StageName& stage : kStages) {
      page.Distribution({{"class", cls}, {"endpoint", endpoint}, {"stage", stage.label}},
                        cell.stages.*stage.histogram);
    }
  });
  AddClients(run, &page);
  return page.Take();
}

}  // namespace castor::load

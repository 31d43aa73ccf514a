#include "client/load/search/sweep.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/load/results/run_json.h"

namespace castor::load {
namespace {

constexpr size_t kMaxCells = 1000;
constexpr double kLeastAnswered = 0.9, kLeastGoodput = 0.9;

[[noreturn]] void Refuse(const std::string& name, const std::string& why) {
  throw cli::UsageError("--vary " + name + ": " + why);
}

// A parameter and its values, as they were written.
struct Vary {
  std::string name;
  std::vector<std::string> values;

  bool raises_load() const { return name == "rate" || name == "callers"; }
};

Vary ParseVary(const std::string& text) {
  const std::vector<std::string> sides = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (sides.size() != 2) Refuse("'" + text + "'", "must look like rate=50,100,200");
  Vary vary{.name = sides[0], .values = absl::StrSplit(sides[1], ',')};
  std::set<std::string> seen;
  for (const std::string& value : vary.values) {
    if (value.empty()) Refuse(vary.name, "a value is empty");
    if (!seen.insert(value).second) Refuse(vary.name, "'" + value + "' is given twice");
  }
  return vary;
}

// As a number where it is one.
void SetKey(const std::string& key, const std::string& value, toml::table* table) {
  int64_t whole = 0;
  double real = 0;
  if (absl::SimpleAtoi(value, &whole)) {
    table->insert_or_assign(key, whole);
  } else if (absl::SimpleAtod(value, &real)) {
    table->insert_or_assign(key, real);
  } else {
    table->insert_or_assign(key, value);
  }
}

void SetOfClass(const std::string& name, const std::string& value, toml::table* spec) {
  const bool encode = (*spec)["kind"].value_or(std::string_view()) == "encode";
  if (name == "heads" || name == "head-dim") {
    if (!encode) SetKey(name, value, spec);
  } else if (name == "length") {
    SetKey("lengths", value, spec);
  } else if (name == "sequences") {
    SetKey(name, value, spec);
  } else if (name == "kernel") {
    spec->insert_or_assign("kernel", value);
  } else {
    const std::string kernel = (*spec)["kernel"].value_or(std::string());
    if (kernel.empty()) {
      Refuse(name,
             "unknown parameter; it may be rate, callers, length, sequences, heads, head-dim, "
             "kernel, or a parameter of the kernel");
    }
    spec->insert_or_assign("kernel", kernel + "," + name + "=" + value);
  }
}

// The workload is one that has been read without an error.
void SetParameter(const std::string& name, const std::string& value, toml::table* workload) {
  if (name == "rate" || name == "callers") {
    toml::node& load = workload->insert("load", toml::table()).first->second;
    return SetKey(name, value, load.as_table());
  }
  for (toml::node& spec : *(*workload)["class"].as_array()) {
    SetOfClass(name, value, spec.as_table());
  }
}

// Why a higher load of this series would only waste time; "": it would not.
std::string Saturation(const SweepCell& cell, double best_goodput) {
  const auto& total = cell.summary["total"];
  const double planned = total["rate"], ok = total["ok_rate"], goodput = total["goodput"];
  const auto percent = [](double share) { return cli::FormatReal(100 * share, "%.3g %%"); };
  if (ok < kLeastAnswered * planned) {
    return "only " + percent(ok / planned) + " of the requests got an answer at a lower load";
  }
  if (goodput < kLeastGoodput * best_goodput) {
    return "goodput fell to " + percent(goodput / best_goodput) + " of what it was at a lower load";
  }
  return "";
}

// Why the run says nothing about the server; "": it does.
std::string ClientsFault(const Verdict& verdict) {
  std::string text;
  for (const Finding& finding : verdict.validity) {
    const bool server = finding.cause == Cause::kTooShort || finding.cause == Cause::kOverload;
    if (finding.passed || server) continue;
    text += (text.empty() ? "" : "; ") + finding.rule + ": " + finding.text;
  }
  return text;
}

}  // namespace

std::vector<SweepCell> MakeSweep(const toml::table& workload, const std::vector<std::string>& vary,
                                 const ReadWorkload& read) {
  (void)read(workload);
  std::vector<Vary> parameters;
  std::set<std::string> names;
  size_t loads = 0, count = 1;
  for (const std::string& text : vary) {
    const Vary& one = parameters.emplace_back(ParseVary(text));
    if (!names.insert(one.name).second) Refuse(one.name, "give its values in one list");
    if (one.raises_load() && ++loads > 1) Refuse(one.name, "either rate or callers can be varied");
    count *= one.values.size();
    if (count > kMaxCells) Refuse(one.name, "there are over 1,000 cells");
  }
  // The load comes last, and rises.
  std::stable_partition(parameters.begin(), parameters.end(),
                        [](const Vary& one) { return !one.raises_load(); });
  if (loads > 0) {
    std::stable_sort(parameters.back().values.begin(), parameters.back().values.end(),
                     [](const std::string& a, const std::string& b) {
                       return std::strtod(a.c_str(), nullptr) < std::strtod(b.c_str(), nullptr);
                     });
  }
  std::vector<SweepCell> cells(count);
  for (size_t i = 0; i < count; ++i) {
    toml::table of_cell = workload;
    size_t cells_each = count;  // of each value
    for (const Vary& one : parameters) {
      cells_each /= one.values.size();
      const std::string& value = one.values[i / cells_each % one.values.size()];
      SetParameter(one.name, value, &of_cell);
      if (one.raises_load()) {
        cells[i].load = value;
      } else {
        cells[i].series.emplace_back(one.name, value);
      }
    }
    cells[i].workload = read(of_cell);
  }
  return cells;
}

bool RunSweep(const std::function<RunData(const Workload&)>& run,
              const std::function<Verdict(const RunData&)>& judge, std::vector<SweepCell>* cells,
              const std::function<void(const SweepCell&)>& on_cell, const std::atomic<bool>& stop) {
  const SweepCell* before = nullptr;
  std::string end;  // why the series ends here
  double best = 0;  // goodput of the series
  for (SweepCell& cell : *cells) {
    if (before == nullptr || before->series != cell.series) {
      end.clear();
      best = 0;
    }
    before = &cell;
    if (!end.empty()) {
      cell.state = CellState::kSkipped;
      cell.why = end;
      on_cell(cell);
      continue;
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      const RunData data = run(cell.workload);
      if (stop.load()) return false;
      cell.why = ClientsFault(judge(data));
      cell.state = cell.why.empty() ? CellState::kDone : CellState::kInvalid;
      cell.summary = SummaryOf(data);
      if (cell.why.empty()) break;  // else once may be this machine's bad moment
    }
    if (cell.state == CellState::kDone) {
      best = std::max(best, cell.summary["total"]["goodput"].get<double>());
      end = Saturation(cell, best);
    } else {
      end = "the client did not keep up at a lower load";
    }
    on_cell(cell);
  }
  return true;
}

}  // namespace castor::load

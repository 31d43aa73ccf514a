#include "client/load/search/sweep.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <stdexcept>

#include "client/file.h"
#include "client/load/measure/redact.h"
#include "client/load/measure/run_json.h"
#include "client/load/search/cause.h"
#include "client/load/search/evidence.h"

namespace castor::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxCells = 10'000;
constexpr int kMaxInvalid = 2;  // cells in a row
constexpr char kSchema[] = "castor-load-sweep/1";

bool RaisesLoad(const std::string& name) { return name == "rate" || name == "callers"; }

double LoadOf(const std::string& value) { return value.empty() ? 0 : std::stod(value); }

const char* NameOf(CellState state) {
  switch (state) {
    case CellState::kPending:
      return "pending";
    case CellState::kDone:
      return "done";
    case CellState::kSkipped:
      return "skipped";
    case CellState::kInvalid:
      return "invalid";
  }
  return "";
}

CellState StateOf(const std::string& name) {
  for (const CellState state :
       {CellState::kPending, CellState::kDone, CellState::kSkipped, CellState::kInvalid}) {
    if (name == NameOf(state)) return state;
  }
  throw std::runtime_error("'" + name + "' is no state of a cell");
}

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g %%", 100 * share);
  return text;
}

// The points of the cell's series that were run.
std::vector<CurvePoint> PointsOf(const Sweep& sweep, const Labels& series) {
  std::vector<CurvePoint> points;
  for (const SweepCell& cell : sweep.cells) {
    if (cell.series != series || cell.state != CellState::kDone) continue;
    points.push_back(PointOf(FromJson(cell.run)));
  }
  return points;
}

}  // namespace

Sweep MakeSweep(const Workload& workload, const std::string& workload_toml,
                const std::vector<Vary>& vary) {
  Sweep sweep{.workload_toml = RedactTokens(workload_toml), .vary = vary, .cells = {{}}};
  std::set<std::string> names;
  std::string load;
  for (const Vary& one : vary) {
    if (!names.insert(one.name).second) {
      throw std::invalid_argument(one.name + " is varied twice: give its values in one list");
    }
    if (RaisesLoad(one.name)) {
      if (!load.empty()) throw std::invalid_argument("either rate or callers can be varied");
      load = one.name;
      continue;
    }
    std::vector<SweepCell> cells;
    if (sweep.cells.size() * one.values.size() > kMaxCells) {
      throw std::invalid_argument("more than 10,000 cells: vary fewer parameters or values");
    }
    for (const SweepCell& cell : sweep.cells) {
      for (const std::string& value : one.values) {
        cells.push_back(cell);
        cells.back().series.emplace_back(one.name, value);
      }
    }
    sweep.cells = std::move(cells);
  }
  for (const Vary& one : vary) {
    if (one.name != load) continue;
    if (sweep.cells.size() * one.values.size() > kMaxCells) {
      throw std::invalid_argument("more than 10,000 cells: vary fewer parameters or values");
    }
    // Check the values before they are sorted as numbers.
    for (const std::string& value : one.values) {
      Workload scratch = workload;
      SetParameter(one.name, value, &scratch);
    }
    std::vector<std::string> values = one.values;
    std::stable_sort(values.begin(), values.end(),
                     [](const auto& a, const auto& b) { return LoadOf(a) < LoadOf(b); });
    std::vector<SweepCell> cells;
    for (const SweepCell& cell : sweep.cells) {
      for (const std::string& value : values) {
        cells.push_back(cell);
        cells.back().load = value;
      }
    }
    sweep.cells = std::move(cells);
  }
  for (const SweepCell& cell : sweep.cells) (void)WorkloadOf(workload, cell);
  return sweep;
}

Workload WorkloadOf(const Workload& workload, const SweepCell& cell) {
  Workload set = workload;
  for (const auto& [name, value] : cell.series) SetParameter(name, value, &set);
  if (!cell.load.empty()) {
    const bool open = std::holds_alternative<OpenLoop>(workload.load);
    SetParameter(open ? "rate" : "callers", cell.load, &set);
  }
  return set;
}

CurvePoint PointOf(const RunData& run) {
  const Cell total = run.Total();
  const double seconds = std::max(run.asked_seconds, 1e-9);
  CurvePoint point;
  point.rate = run.open_loop ? run.asked_rate : static_cast<double>(total.planned()) / seconds;
  point.throughput = static_cast<double>(total.of(Outcome::kOk)) / seconds;
  point.goodput = static_cast<double>(total.good) / seconds;
  point.error_share = total.error_share();
  point.p50_ns = total.intended.ValueAt(0.5);
  point.p90_ns = total.intended.ValueAt(0.9);
  point.p99_ns = total.intended.ValueAt(0.99);
  point.p999_ns = total.intended.ValueAt(0.999);
  Evidence evidence;
  evidence.Add(run);
  point.worst_goal = evidence.Worst();
  point.cancelled = static_cast<double>(total.of(Outcome::kCancelled)) / seconds;
  return point;
}

std::vector<Curve> CurvesOf(const Sweep& sweep) {
  std::vector<Curve> curves;
  for (const SweepCell& cell : sweep.cells) {
    if (cell.state != CellState::kDone) continue;
    if (curves.empty() || curves.back().series != cell.series) {
      curves.push_back({.series = cell.series, .points = {}});
    }
    curves.back().points.push_back(PointOf(FromJson(cell.run)));
  }
  return curves;
}

std::string Saturation(const std::vector<CurvePoint>& points) {
  if (points.empty()) return "";
  const CurvePoint& last = points.back();
  const double answerable = last.rate - last.cancelled;
  if (last.throughput < 0.9 * answerable) {
    return "only " + Percent(last.throughput / answerable) + " of the requests got an answer";
  }
  double best = 0;
  for (const CurvePoint& point : points) best = std::max(best, point.goodput);
  if (last.goodput < 0.9 * best) {
    return "goodput fell to " + Percent(last.goodput / best) + " of what it was at a lower rate";
  }
  if (last.worst_goal > 5 && last.goodput < 0.95 * last.throughput) {
    return "objectives are missed by far";
  }
  return "";
}

nlohmann::ordered_json ToJson(const Sweep& sweep) {
  Json json = {{"schema", kSchema}, {"workload", sweep.workload_toml}};
  Json& vary = json["vary"] = Json::array();
  for (const Vary& one : sweep.vary) {
    vary.push_back({{"name", one.name}, {"values", one.values}});
  }
  Json& cells = json["cells"] = Json::array();
  for (const SweepCell& cell : sweep.cells) {
    Json series = Json::object();
    for (const auto& [name, value] : cell.series) series[name] = value;
    Json entry = {{"series", series}, {"load", cell.load}, {"state", NameOf(cell.state)}};
    if (!cell.why.empty()) entry["why"] = cell.why;
    if (cell.state == CellState::kDone) entry["run"] = cell.run;
    cells.push_back(std::move(entry));
  }
  return json;
}

Sweep SweepFromJson(const nlohmann::ordered_json& json) {
  try {
    if (json.at("schema") != kSchema) {
      throw std::runtime_error(std::string("its schema is not ") + kSchema);
    }
    Sweep sweep{.workload_toml = json.at("workload"), .vary = {}, .cells = {}};
    for (const Json& one : json.at("vary")) {
      sweep.vary.push_back({.name = one.at("name"), .values = one.at("values")});
    }
    for (const Json& entry : json.at("cells")) {
      SweepCell cell;
      for (const auto& [name, value] : entry.at("series").items()) {
        cell.series.emplace_back(name, value.get<std::string>());
      }
      cell.load = entry.at("load");
      cell.state = StateOf(entry.at("state"));
      cell.why = entry.value("why", "");
      if (cell.state == CellState::kDone) cell.run = entry.at("run");
      sweep.cells.push_back(std::move(cell));
    }
    return sweep;
  } catch (const Json::exception& error) {
    throw std::runtime_error(std::string("not a saved sweep: ") + error.what());
  }
}

void SaveSweep(const Sweep& sweep, const std::string& path) {
  const std::string unfinished = path + ".new";
  const absl::Status written = client::WriteFile(unfinished, {ToJson(sweep).dump(), "\n"});
  if (!written.ok()) throw std::runtime_error(std::string(written.message()));
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    throw std::runtime_error("cannot rename '" + unfinished + "' to '" + path + "'");
  }
}

Sweep LoadSweep(const std::string& path) {
  auto file = client::InputFile::Open(path);
  std::string text;
  absl::Status status = file.status();
  if (file.ok()) status = file->Append(size_t{4} << 30, &text);
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  try {
    return SweepFromJson(Json::parse(text));
  } catch (const Json::exception& error) {
    throw std::runtime_error("'" + path + "': not JSON: " + error.what());
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("'" + path + "': " + error.what());
  }
}

std::string ClientsFault(const Verdict& verdict) {
  std::string text;
  for (const Finding& finding : verdict.validity) {
    const Cause cause = CauseOf(finding.rule);
    if (finding.passed || cause == Cause::kTooShort || cause == Cause::kOverload) continue;
    text += (text.empty() ? "" : "; ") + finding.rule + ": " + finding.text;
  }
  return text;
}

bool RunSweep(const Workload& workload, const RunCell& run, const JudgeRun& judge,
              const std::string& path, Sweep* sweep, const OnCell& on_cell,
              const std::atomic<bool>& stop) {
  std::string end;  // why the series of `of` ends here
  const Labels* of = nullptr;
  std::vector<CurvePoint> points;
  int invalid = 0;  // cells in a row
  for (SweepCell& cell : sweep->cells) {
    if (of == nullptr || *of != cell.series) {
      of = &cell.series;
      // What an earlier sitting measured of this series.
      points = PointsOf(*sweep, cell.series);
      end = Saturation(points);
      invalid = 0;
    }
    if (cell.state == CellState::kDone) invalid = 0;
    if (cell.state == CellState::kInvalid) ++invalid;
    if (cell.state != CellState::kPending) continue;
    if (stop.load()) return false;
    if (invalid == kMaxInvalid) end = "the runs at two lower rates were INVALID";
    if (!end.empty()) {
      cell.state = CellState::kSkipped;
      cell.why = "a lower rate was enough: " + end;
    } else {
      for (int attempt = 0; attempt < 2; ++attempt) {
        RunData data = run(WorkloadOf(workload, cell), cell);
        if (stop.load()) return false;
        cell.why = ClientsFault(judge(data));
        if (!cell.why.empty()) continue;  // once may be this machine's bad moment
        points.push_back(PointOf(data));
        end = Saturation(points);
        data.seconds.clear();  // most of its bytes, and nothing that a curve shows
        cell.run = ToJson(data);
        break;
      }
      cell.state = cell.why.empty() ? CellState::kDone : CellState::kInvalid;
      invalid = cell.why.empty() ? 0 : invalid + 1;
    }
    if (!path.empty()) SaveSweep(*sweep, path);
    if (on_cell) on_cell(*sweep, cell);
  }
  return true;
}

Sweep ResumeSweep(const std::string& path, const Sweep& wanted) {
  Sweep saved = LoadSweep(path);
  const auto same = [](const Vary& a, const Vary& b) {
    return a.name == b.name && a.values == b.values;
  };
  if (saved.workload_toml != wanted.workload_toml) {
    throw std::runtime_error("'" + path + "' is a sweep of another workload: name another file");
  }
  if (!std::equal(saved.vary.begin(), saved.vary.end(), wanted.vary.begin(), wanted.vary.end(),
                  same) ||
      saved.cells.size() != wanted.cells.size()) {
    throw std::runtime_error("'" + path + "' is a sweep of other parameters: name another file");
  }
  return saved;
}

}  // namespace castor::load

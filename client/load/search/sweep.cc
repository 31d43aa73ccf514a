#include "client/load/search/sweep.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "client/cli/attend/kernel_flags.h"
#include "client/cli/report.h"
#include "client/load/results/run_json.h"

namespace castor::load {
namespace {

constexpr size_t kMaxCells = 1000;
constexpr double kLeastAnswered = 0.9, kLeastGoodput = 0.9;

[[noreturn]] void Refuse(const std::string& name, const std::string& why) {
  throw std::invalid_argument("--vary " + name + ": " + why);
}

double Number(const std::string& name, const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value > 0 && value <= 1e7)) {
    Refuse(name, "'" + text + "' is not a number above 0");
  }
  return value;
}

int64_t Count(const std::string& name, const std::string& text) {
  const double value = Number(name, text);
  if (value != static_cast<double>(static_cast<int64_t>(value))) {
    Refuse(name, "'" + text + "' is not a whole number");
  }
  return static_cast<int64_t>(value);
}

bool RaisesLoad(const std::string& name) { return name == "rate" || name == "callers"; }

// Sets what attend and encode classes have in common; false: `name` is something else.
template <typename Call>
bool SetCommon(const std::string& name, const std::string& value, Call& call) {
  if (name == "length") {
    call.lengths = FixedLength{Count(name, value)};
  } else if (name == "sequences") {
    call.sequences = FixedLength{Count(name, value)};
  } else {
    return false;
  }
  return true;
}

bool Set(const std::string& name, const std::string& value, AttendSpec& attend) {
  if (name == "heads") {
    attend.heads = Count(name, value);
  } else if (name == "head-dim") {
    attend.head_dim = Count(name, value);
  } else {
    return SetCommon(name, value, attend);
  }
  return true;
}

bool Set(const std::string& name, const std::string& value, EncodeSpec& encode) {
  if (name == "heads" || name == "head-dim") return true;  // classes without it stay as they are
  return SetCommon(name, value, encode);
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

Vary ParseVary(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) Refuse("'" + text + "'", "must look like rate=50,100,200");
  Vary vary{.name = text.substr(0, equals), .values = {}};
  for (size_t begin = equals + 1; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string value = text.substr(begin, end - begin);
    if (value.empty()) Refuse(vary.name, "a value is empty");
    if (std::find(vary.values.begin(), vary.values.end(), value) != vary.values.end()) {
      Refuse(vary.name, "'" + value + "' is given twice");
    }
    vary.values.push_back(std::move(value));
    begin = end + 1;
  }
  return vary;
}

void SetParameter(const std::string& name, const std::string& value, Workload* workload) {
  if (name == "rate") {
    auto* open = std::get_if<OpenLoop>(&workload->load);
    if (open == nullptr) Refuse(name, "the workload is not an open loop");
    open->rate = Number(name, value);
    return;
  }
  if (name == "callers") {
    auto* closed = std::get_if<ClosedLoop>(&workload->load);
    if (closed == nullptr) Refuse(name, "the workload is not a closed loop");
    closed->callers = Count(name, value);
    return;
  }
  for (ClassSpec& spec : workload->classes) {
    const bool own = std::visit([&](auto& call) { return Set(name, value, call); }, spec.call);
    if (own) continue;
    std::string& kernel =
        std::visit([](auto& call) -> std::string& { return call.kernel; }, spec.call);
    if (name != "kernel" && kernel.empty()) {
      Refuse(name,
             "unknown parameter; it may be rate, callers, length, sequences, heads, head-dim, "
             "kernel, or a parameter of the kernel");
    }
    kernel = name == "kernel" ? value : kernel + "," + name + "=" + value;
    try {
      cli::CheckKernel(kernel);
    } catch (const CLI::Error& error) {
      Refuse(name, error.what());
    }
  }
}

std::vector<SweepCell> MakeSweep(const Workload& workload, const std::vector<Vary>& vary) {
  std::vector<SweepCell> cells(1);
  std::set<std::string> names;
  const auto combine = [&](const Vary& one, const std::vector<std::string>& values, bool load) {
    std::vector<SweepCell> combined;
    if (cells.size() * values.size() > kMaxCells) Refuse(one.name, "there are over 1,000 cells");
    for (const SweepCell& cell : cells) {
      for (const std::string& value : values) {
        SweepCell& made = combined.emplace_back(cell);
        if (load) {
          made.load = value;
        } else {
          made.series.emplace_back(one.name, value);
        }
      }
    }
    cells = std::move(combined);
  };
  const Vary* load = nullptr;
  for (const Vary& one : vary) {
    if (!names.insert(one.name).second) Refuse(one.name, "give its values in one list");
    for (const std::string& value : one.values) {
      Workload scratch = workload;
      SetParameter(one.name, value, &scratch);
    }
    if (!RaisesLoad(one.name)) {
      combine(one, one.values, false);
    } else if (load == nullptr) {
      load = &one;
    } else {
      Refuse(one.name, "either rate or callers can be varied");
    }
  }
  if (load != nullptr) {
    std::vector<std::string> rising = load->values;
    std::stable_sort(rising.begin(), rising.end(), [](const auto& a, const auto& b) {
      return Number("load", a) < Number("load", b);
    });
    combine(*load, rising, true);
  }
  return cells;
}

bool RunSweep(const Workload& workload, const std::function<RunData(const Workload&)>& run,
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
    Workload of_cell = workload;
    for (const auto& [name, value] : cell.series) SetParameter(name, value, &of_cell);
    const bool open = std::holds_alternative<OpenLoop>(workload.load);
    if (!cell.load.empty()) SetParameter(open ? "rate" : "callers", cell.load, &of_cell);
    for (int attempt = 0; attempt < 2; ++attempt) {
      const RunData data = run(of_cell);
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

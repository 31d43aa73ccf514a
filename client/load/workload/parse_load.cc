#include <algorithm>

#include "client/load/workload/parse_parts.h"

namespace castor::load {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr Range kRate{0, kMaxRate, /*above=*/true};
constexpr Range kRateOrNone{0, kMaxRate};
constexpr size_t kMaxSteps = 10'000;
constexpr int64_t kMaxCallers = 100'000;
constexpr int64_t kMaxInFlight = 10'000'000;

RampRate ReadRamp(TomlTable table) {
  RampRate ramp;
  table.Real("from", kRateOrNone, &ramp.from);
  table.Real("to", kRateOrNone, &ramp.to);
  if (ramp.from == 0 && ramp.to == 0) table.Fail("to", "from and to are both 0");
  table.RefuseOthers();
  return ramp;
}

StepRate ReadSteps(TomlTable& table) {
  const toml::node& node = *table.Find("steps");
  const auto* rates = node.as_array();
  if (rates == nullptr || rates->empty() || rates->size() > kMaxSteps) {
    table.Refuse("steps", node, "an array of 1 to 10000 rates");
  }
  StepRate steps;
  for (const toml::node& rate : *rates) {
    steps.rates.push_back(table.RealOf("steps", rate, kRateOrNone));
  }
  if (*std::max_element(steps.rates.begin(), steps.rates.end()) == 0) {
    table.Fail("steps", "steps are all 0");
  }
  return steps;
}

SineRate ReadSine(TomlTable table) {
  SineRate sine;
  table.Real("mean", kRate, &sine.mean);
  sine.amplitude = std::min(sine.amplitude, sine.mean);
  table.Real("amplitude", {0, sine.mean}, &sine.amplitude);
  table.Time("period", milliseconds(1), hours(24 * 7), &sine.period);
  table.RefuseOthers();
  return sine;
}

BurstRate ReadBursts(TomlTable table) {
  BurstRate bursts;
  table.Real("base", kRateOrNone, &bursts.base);
  table.Real("burst", kRate, &bursts.burst);
  table.Time("period", milliseconds(1), hours(24 * 7), &bursts.period);
  bursts.length = std::min(bursts.length, bursts.period);
  table.Time("length", nanoseconds(1), bursts.period, &bursts.length);
  table.RefuseOthers();
  return bursts;
}

Rate ReadRate(TomlTable& table) {
  constexpr const char* kShapes[] = {"rate", "ramp", "steps", "sine", "bursts"};
  std::string_view shape;
  for (const char* key : kShapes) {
    if (!table.Has(key)) continue;
    if (!shape.empty()) {
      table.Fail(key, std::string(shape) + " and " + key + " exclude each other: a load has one");
    }
    shape = key;
  }
  if (shape == "ramp") return ReadRamp(table.Sub("ramp"));
  if (shape == "steps") return ReadSteps(table);
  if (shape == "sine") return ReadSine(table.Sub("sine"));
  if (shape == "bursts") return ReadBursts(table.Sub("bursts"));
  FlatRate flat;
  table.Real("rate", kRate, &flat.rate);
  return flat;
}

OpenLoop ReadOpenLoop(TomlTable& table, Process process) {
  OpenLoop open;
  open.process = process;
  if (process == Process::kGamma) table.Real("burstiness", {0.1, 10}, &open.burstiness);
  open.rate = ReadRate(table);
  table.Whole("max-in-flight", 0, kMaxInFlight, &open.max_in_flight);
  return open;
}

ClosedLoop ReadClosedLoop(TomlTable& table) {
  ClosedLoop closed;
  table.Whole("callers", 1, kMaxCallers, &closed.callers);
  table.Time("think-time", nanoseconds(0), hours(1), &closed.think_time);
  return closed;
}

Replay ReadReplay(TomlTable& table, const ClassSpec& each) {
  Replay replay;
  table.Text("file", &replay.file);
  if (replay.file.empty()) table.Fail("file", "a replay needs a file");
  table.Real("speed", {0.001, 1000}, &replay.speed);
  table.Whole("max-in-flight", 0, kMaxInFlight, &replay.max_in_flight);
  replay.each = each;
  return replay;
}

}  // namespace

decltype(Workload::load) ReadLoad(TomlTable& table, const ClassSpec& each) {
  size_t arrivals = static_cast<size_t>(Process::kPoisson);
  table.Choice("arrivals", {"constant", "poisson", "gamma", "closed", "replay"}, &arrivals);
  if (arrivals == 3) return ReadClosedLoop(table);
  if (arrivals == 4) return ReadReplay(table, each);
  return ReadOpenLoop(table, static_cast<Process>(arrivals));
}

}  // namespace castor::load

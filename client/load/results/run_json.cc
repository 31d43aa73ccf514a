#include "client/load/results/run_json.h"

#include <stdexcept>

#include "client/file.h"

namespace castor::load {
namespace {

constexpr char kFormat[] = "castor-load run";
constexpr int kVersion = 3;

constexpr double kMaxNumber = 1e15;  // above any run; sums of such counts do not overflow
constexpr size_t kMaxCells = 4096;
constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr int kMaxDepth = 12;

// Throws an error that has the value's path.
[[noreturn]] void Refuse(const Json& json, const std::string& why) {
  throw Json::type_error::create(302, why, &json);
}

}  // namespace

// ---- fields; those of a file may hold any value

void to_json(Json& json, const Histogram& histogram) {
  json = {{"min_ns", histogram.min()},
          {"max_ns", histogram.max()},
          {"sum_ns", histogram.sum()},
          {"lowest_ns", Json::array()},
          {"counts", Json::array()}};
  for (const Histogram::Bucket& bucket : histogram.Buckets()) {
    json["lowest_ns"].push_back(buckets::LowestOf(bucket.index));
    json["counts"].push_back(bucket.count);
  }
}

void from_json(const Json& json, Histogram& histogram) {
  const auto lowest = json.at("lowest_ns").get<std::vector<int64_t>>();
  const auto counts = json.at("counts").get<std::vector<int64_t>>();
  if (lowest.size() != counts.size()) Refuse(json, "must have as many counts as buckets");
  if (lowest.empty()) return;
  std::vector<Histogram::Bucket> read;
  int64_t total = 0;
  for (size_t i = 0; i < lowest.size(); ++i) {
    const bool in_range = lowest[i] >= 0 && lowest[i] <= buckets::kHighestValue;
    const int index = in_range ? buckets::IndexOf(lowest[i]) : -1;
    if (!in_range || buckets::LowestOf(index) != lowest[i] ||
        (!read.empty() && index <= read.back().index)) {
      Refuse(json, "must hold lowest values of buckets, each above the one before");
    }
    total += counts[i];
    if (counts[i] < 1 || static_cast<double>(total) > kMaxNumber) {
      Refuse(json, "must hold counts of at least 1");
    }
    read.push_back({index, counts[i]});
  }
  const int64_t min = json.at("min_ns"), max = json.at("max_ns"), sum = json.at("sum_ns");
  if (min < 0 || min > max || max > buckets::kHighestValue || sum < 0 ||
      buckets::IndexOf(min) != read.front().index || buckets::IndexOf(max) != read.back().index) {
    Refuse(json, "must have its min_ns in its first bucket and its max_ns in its last");
  }
  histogram = Histogram::Restore(read, min, max, sum);
}

void to_json(Json& json, const LatencyGoal& goal) {
  json = {{"quantile", goal.quantile}, {"limit_ns", goal.limit.count()}};
}

void from_json(const Json& json, LatencyGoal& goal) {
  json.at("quantile").get_to(goal.quantile);
  goal.limit = std::chrono::nanoseconds(json.at("limit_ns").get<int64_t>());
}

void to_json(Json& json, const Objective& objective) {
  json = {{"latencies", objective.latencies}};
  if (objective.max_error_share) json["max_error_share"] = *objective.max_error_share;
}

void from_json(const Json& json, Objective& objective) {
  json.at("latencies").get_to(objective.latencies);
  if (json.contains("max_error_share")) {
    objective.max_error_share = json["max_error_share"].get<double>();
  }
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Stages, queue, compute, server, network)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Verified, equal, different)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Cell, outcomes, good, above_goal, intended, service, lag, tokens,
                                   kernels, messages, stages, verified)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Second, outcomes, good, in_flight, intended)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClientLoad, seconds, cpu_seconds, busiest_thread, share, shares)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ServerCounts, metrics, counted, calls)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunData, begun, client_version, server_version, workload,
                                   asked_seconds, asked_rate, open_loop, seed, endpoints, classes,
                                   objectives, clients, servers, cells, seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, rule, passed, text)

namespace {

void CheckNumbers(const Json& json) {
  if (json.is_structured()) {
    for (const Json& element : json) CheckNumbers(element);
  } else if (json.is_number()) {
    // A count may be -1 (ServerCounts).
    const auto number = json.get<double>();
    if (!(number >= -1 && number < kMaxNumber)) Refuse(json, "must be a number from 0 to 1e15");
  }
}

void CheckShape(const RunData& run) {
  const auto check = [](bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what);
  };
  const size_t classes = run.classes.size(), endpoints = run.endpoints.size();
  check(classes > 0 && endpoints > 0 && classes * endpoints <= kMaxCells,
        "classes and endpoints must be there, and 4096 cells at most");
  check(run.objectives.size() == classes, "objectives must be as many as classes");
  check(run.cells.size() == classes, "cells must be as many as classes");
  check(run.servers.size() == endpoints, "servers must be as many as endpoints");
  check(!run.clients.empty(), "clients must not be empty");
  for (size_t cls = 0; cls < classes; ++cls) {
    const std::string name = "cells[" + std::to_string(cls) + "]";
    check(run.cells[cls].size() == endpoints, name + " must have one element for each endpoint");
    for (const Cell& cell : run.cells[cls]) {
      check(cell.above_goal.size() == run.objectives[cls].latencies.size(),
            name + ".above_goal must have one number for each latency goal");
    }
    for (const LatencyGoal& goal : run.objectives[cls].latencies) {
      check(goal.quantile > 0 && goal.quantile < 1, "quantile must lie between 0 and 1");
    }
  }
  for (const auto& second : run.seconds) {
    check(second.size() == classes, "seconds must each have one element for each class");
  }
}

// ---- figures for readers

Json Milliseconds(const Histogram& histogram) {
  const auto at = [&](double quantile) {
    return static_cast<double>(histogram.ValueAt(quantile)) / 1e6;
  };
  return {{"mean_ms", histogram.mean() / 1e6},
          {"p50_ms", at(0.5)},
          {"p90_ms", at(0.9)},
          {"p95_ms", at(0.95)},
          {"p99_ms", at(0.99)},
          {"p99_9_ms", at(0.999)},
          {"max_ms", static_cast<double>(histogram.max()) / 1e6}};
}

Json SummaryOf(const Cell& cell, double seconds) {
  const auto rate = [&](int64_t count) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  };
  Json outcomes;
  for (size_t i = 0; i < cell.outcomes.size(); ++i) {
    outcomes[NameOf(static_cast<Outcome>(i))] = cell.outcomes[i];
  }
  return {{"planned", cell.planned()},
          {"rate", rate(cell.planned())},
          {"ok_rate", rate(cell.of(Outcome::kOk))},
          {"goodput", rate(cell.good)},
          {"error_share", cell.error_share()},
          {"outcomes", std::move(outcomes)},
          {"intended", Milliseconds(cell.intended)},
          {"service", Milliseconds(cell.service)},
          {"lag", Milliseconds(cell.lag)}};
}

}  // namespace

Json SummaryOf(const RunData& run) {
  const double seconds = run.MeasuredSeconds();
  Json classes = Json::object();
  for (size_t i = 0; i < run.classes.size(); ++i) {
    classes[run.classes[i]] = SummaryOf(run.OfClass(i), seconds);
  }
  return {{"total", SummaryOf(run.Total(), seconds)}, {"classes", std::move(classes)}};
}

std::string FormatRun(const RunData& run, const Verdict& verdict) {
  Json json = run;
  json["server_setting"] = run.server_setting;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["verdict"] = {{"valid", verdict.valid()},
                     {"met", verdict.met()},
                     {"validity", verdict.validity},
                     {"objectives", verdict.objectives}};
  json["summary"] = SummaryOf(run);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunData ParseRun(std::string_view text) {
  const auto bound = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) throw std::runtime_error("nested too deeply: not a saved run");
    return true;
  };
  try {
    const Json json = Json::parse(text, bound);
    if (!json.is_object() || json.value("format", Json()) != kFormat) {
      throw std::runtime_error("not a run saved by castor-load run --json");
    }
    if (json.at("version") != kVersion) {
      throw std::runtime_error("version must be " + std::to_string(kVersion) +
                               ": use the castor-load that wrote this run");
    }
    for (const auto& [key, value] : json.items()) {
      if (key != "seed") CheckNumbers(value);
    }
    auto run = json.get<RunData>();
    run.server_setting = json.value("server_setting", "");  // older runs have none
    CheckShape(run);
    return run;
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();
    // Without nlohmann's number of the error.
    throw std::runtime_error(std::string(what.substr(what.find("] ") + 2)));
  }
}

RunData LoadRun(const std::string& path) {
  const absl::StatusOr<std::string> text = client::ReadFile(path, kMaxBytes);
  if (!text.ok()) throw std::runtime_error(std::string(text.status().message()));
  try {
    return ParseRun(*text);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace castor::load

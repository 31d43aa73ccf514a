#include "client/load/results/run_json.h"

#include <stdexcept>
#include <type_traits>

#include "client/file.h"

namespace castor::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "castor-load run";
constexpr int64_t kVersion = 2;

// Bounds that no run reaches, and under which no sum of counts overflows.
constexpr int64_t kMaxCount = 1'000'000'000'000'000;
constexpr size_t kMaxElements = 200'000;
constexpr size_t kMaxCells = 4096;
constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr int kMaxDepth = 12;

// ---- the fields, for writing and for reading

template <typename Archive>
void Fields(Archive& archive, Stages& stages) {
  archive("queue", stages.queue);
  archive("compute", stages.compute);
  archive("server", stages.server);
  archive("network", stages.network);
  archive("predicted", stages.predicted);
  archive("predicted_within", stages.predicted_within);
}

template <typename Archive>
void Fields(Archive& archive, Verified& verified) {
  archive("equal", verified.equal);
  archive("different", verified.different);
  archive("error_e9", verified.error_e9);
}

template <typename Archive>
void Fields(Archive& archive, Cell& cell) {
  archive("outcomes", cell.outcomes);
  archive("good", cell.good);
  archive("above_goal", cell.above_goal);
  archive("intended", cell.intended);
  archive("service", cell.service);
  archive("lag", cell.lag);
  archive("tokens", cell.tokens);
  archive("kernels", cell.kernels);
  archive("messages", cell.messages);
  archive("stages", cell.stages);
  archive("verified", cell.verified);
}

template <typename Archive>
void Fields(Archive& archive, Second& second) {
  archive("outcomes", second.outcomes);
  archive("good", second.good);
  archive("in_flight", second.in_flight);
  archive("intended", second.intended);
}

template <typename Archive>
void Fields(Archive& archive, ClientLoad& client) {
  archive("seconds", client.seconds);
  archive("cpu_seconds", client.cpu_seconds);
  archive("busiest_thread", client.busiest_thread);
  archive("share", client.share);
  archive("shares", client.shares);
}

template <typename Archive>
void Fields(Archive& archive, ServerCounts& server) {
  archive("metrics", server.metrics);
  archive("counted", server.counted);
  archive("calls", server.calls);
}

template <typename Archive>
void Fields(Archive& archive, LatencyGoal& goal) {
  int64_t limit_ns = goal.limit.count();
  archive("quantile", goal.quantile);
  archive("limit_ns", limit_ns);
  goal.limit = std::chrono::nanoseconds(limit_ns);
}

template <typename Archive>
void Fields(Archive& archive, Objective& objective) {
  archive("latencies", objective.latencies);
  archive("max_error_share", objective.max_error_share);
}

template <typename Archive>
void Fields(Archive& archive, RunData& run) {
  archive("begun", run.begun);
  archive("client_version", run.client_version);
  archive("server_version", run.server_version);
  archive("workload", run.workload);
  archive("asked_seconds", run.asked_seconds);
  archive("asked_rate", run.asked_rate);
  archive("open_loop", run.open_loop);
  archive("seed", run.seed);
  archive("endpoints", run.endpoints);
  archive("classes", run.classes);
  archive("objectives", run.objectives);
  archive("clients", run.clients);
  archive("servers", run.servers);
  archive("cells", run.cells);
  archive("seconds", run.seconds);
}

// ---- writing

class Writer {
 public:
  template <typename Value>
  void operator()(const char* key, Value& value) {
    json_[key] = Of(value);
  }

  static Json Of(Histogram& histogram) {
    Json lowest = Json::array(), counts = Json::array();
    for (const Histogram::Bucket& bucket : histogram.Buckets()) {
      lowest.push_back(buckets::LowestOf(bucket.index));
      counts.push_back(bucket.count);
    }
    return {{"min_ns", histogram.min()},
            {"max_ns", histogram.max()},
            {"sum_ns", histogram.sum()},
            {"lowest_ns", std::move(lowest)},
            {"counts", std::move(counts)}};
  }
  static Json Of(Outcomes& outcomes) {
    Json json = Json::object();
    for (size_t i = 0; i < outcomes.size(); ++i) {
      json[NameOf(static_cast<Outcome>(i))] = outcomes[i];
    }
    return json;
  }
  static Json Of(std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }
  template <typename Value>
  static Json Of(std::vector<Value>& values) {
    Json json = Json::array();
    for (Value& value : values) json.push_back(Of(value));
    return json;
  }
  template <typename Value>
  static Json Of(Value& value) {
    if constexpr (std::is_constructible_v<Json, Value>) {
      return Json(value);
    } else {
      Writer writer;
      Fields(writer, value);
      return std::move(writer.json_);
    }
  }

 private:
  Json json_ = Json::object();
};

// ---- reading: a file may come from anywhere

class Reader {
 public:
  Reader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  template <typename Value>
  void operator()(const char* key, Value& value) {
    const std::string path = path_.empty() ? key : path_ + "." + key;
    const auto found = json_.find(key);
    if (!json_.is_object() || found == json_.end()) throw std::runtime_error(path + " is missing");
    Reader(*found, path).Read(value);
  }

  void Read(int64_t& value) {
    value = Integer(json_);
    if (value < -1 || value > kMaxCount) Refuse("must be a whole number and not huge");
  }
  void Read(uint64_t& value) {
    if (!json_.is_number_unsigned()) Refuse("must be a whole number");
    value = json_.get<uint64_t>();
  }
  void Read(double& value) {
    value = json_.is_number() ? json_.get<double>() : -1;
    if (!(value >= 0 && value < 1e15)) Refuse("must be a number that is not negative");
  }
  void Read(std::optional<double>& value) {
    if (!json_.is_null()) Read(value.emplace());
  }
  void Read(bool& value) {
    if (!json_.is_boolean()) Refuse("must be true or false");
    value = json_.get<bool>();
  }
  void Read(std::string& value) {
    if (!json_.is_string()) Refuse("must be a string");
    value = json_.get<std::string>();
  }
  void Read(Outcomes& outcomes) {
    for (size_t i = 0; i < outcomes.size(); ++i) {
      (*this)(NameOf(static_cast<Outcome>(i)), outcomes[i]);
    }
  }
  void Read(std::map<std::string, int64_t>& counts) {
    if (!json_.is_object() || json_.size() > 256) Refuse("must be an object of counts");
    for (const auto& [name, count] : json_.items()) {
      Reader(count, path_ + "." + name).Read(counts[name]);
    }
  }
  template <typename Value>
  void Read(std::vector<Value>& values) {
    if (!json_.is_array() || json_.size() > kMaxElements) Refuse("must be an array");
    values.resize(json_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      Reader(json_[i], path_ + "[" + std::to_string(i) + "]").Read(values[i]);
    }
  }
  void Read(Histogram& histogram);
  template <typename Value>
  void Read(Value& value) {
    Fields(*this, value);
  }

  [[noreturn]] void Refuse(const std::string& must) const {
    throw std::runtime_error((path_.empty() ? "the file" : path_) + " " + must);
  }

 private:
  // INT64_MIN: none.
  static int64_t Integer(const Json& json) {
    const bool fits =
        json.is_number_unsigned() ? json.get<uint64_t>() <= INT64_MAX : json.is_number_integer();
    return fits ? json.get<int64_t>() : INT64_MIN;
  }

  const Json& json_;
  const std::string path_;
};

void Reader::Read(Histogram& histogram) {
  if (!json_.is_object()) Refuse("must be an object");
  for (const char* key : {"lowest_ns", "counts"}) {
    if (!json_.contains(key) || !json_[key].is_array())
      Refuse("must have an array " + std::string(key));
  }
  const Json &lowest = json_["lowest_ns"], &counts = json_["counts"];
  if (lowest.size() != counts.size() || lowest.size() > buckets::kCount) {
    Refuse("must have as many counts as buckets");
  }
  if (lowest.empty()) return;
  std::vector<Histogram::Bucket> read;
  int64_t total = 0;
  for (size_t i = 0; i < lowest.size(); ++i) {
    const int64_t value = Integer(lowest[i]), count = Integer(counts[i]);
    const bool in_range = value >= 0 && value <= buckets::kHighestValue;
    const int index = in_range ? buckets::IndexOf(value) : -1;
    if (!in_range || buckets::LowestOf(index) != value ||
        (!read.empty() && index <= read.back().index)) {
      Refuse("must hold lowest values of buckets, each above the one before");
    }
    if (count < 1 || count > kMaxCount - total) Refuse("must hold counts of at least 1");
    read.push_back({index, count});
    total += count;
  }
  const auto figure = [&](const char* key) {
    const int64_t value = json_.contains(key) ? Integer(json_[key]) : -1;
    if (value < 0) Refuse(std::string("must have a whole number ") + key);
    return value;
  };
  const int64_t min = figure("min_ns"), max = figure("max_ns"), sum = figure("sum_ns");
  if (min > max || max > buckets::kHighestValue || buckets::IndexOf(min) != read.front().index ||
      buckets::IndexOf(max) != read.back().index) {
    Refuse("must have its min_ns in its first bucket and its max_ns in its last");
  }
  histogram = Histogram::Restore(read, min, max, sum);
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
  Outcomes outcomes = cell.outcomes;
  return {{"planned", cell.planned()},
          {"rate", rate(cell.planned())},
          {"ok_rate", rate(cell.of(Outcome::kOk))},
          {"goodput", rate(cell.good)},
          {"error_share", cell.error_share()},
          {"outcomes", Writer::Of(outcomes)},
          {"intended", Milliseconds(cell.intended)},
          {"service", Milliseconds(cell.service)},
          {"lag", Milliseconds(cell.lag)}};
}

Json ToJson(const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& finding : findings) {
    json.push_back({{"rule", finding.rule}, {"passed", finding.passed}, {"text", finding.text}});
  }
  return json;
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
  Json json = {{"format", kFormat}, {"version", kVersion}};
  json["verdict"] = {{"valid", verdict.valid()},
                     {"met", verdict.met()},
                     {"validity", ToJson(verdict.validity)},
                     {"objectives", ToJson(verdict.objectives)}};
  json["summary"] = SummaryOf(run);
  RunData copy = run;
  json.update(Writer::Of(copy));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunData ParseRun(std::string_view text) {
  if (text.size() > kMaxBytes) throw std::runtime_error("larger than 256 MiB: not a saved run");
  const auto bound = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) throw std::runtime_error("nested too deeply: not a saved run");
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, bound);
  } catch (const Json::exception& error) {
    throw std::runtime_error(std::string("not JSON: ") + error.what());
  }
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat) {
    throw std::runtime_error("not a run saved by castor-load run --json");
  }
  if (!json.contains("version") || json["version"] != kVersion) {
    throw std::runtime_error("version must be 2: another castor-load wrote this run, use that");
  }
  RunData run;
  Reader(json, "").Read(run);
  CheckShape(run);
  return run;
}

RunData LoadRun(const std::string& path) {
  auto file = client::InputFile::Open(path);
  std::string text;
  absl::Status status = file.status();
  if (status.ok()) status = file->Append(kMaxBytes + 1, &text);
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  try {
    return ParseRun(text);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace castor::load

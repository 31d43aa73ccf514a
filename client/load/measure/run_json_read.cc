// The reading half of run_json.h. A file may come from anywhere: everything is checked that other
// code relies on.

#include <cmath>
#include <limits>
#include <stdexcept>

#include "client/file.h"
#include "client/load/measure/run_json.h"

namespace castor::load {
namespace {

using Json = nlohmann::ordered_json;

// Bounds that no run reaches, and under which no sum of counts overflows.
constexpr int64_t kMaxCount = 1'000'000'000'000;
constexpr int64_t kMaxAmount = 1'000'000'000'000'000;  // of bytes, tokens
constexpr size_t kMaxClasses = 256, kMaxEndpoints = 1024, kMaxCells = 4096;
constexpr size_t kMaxSeconds = 200'000, kMaxWorkers = 4096, kMaxSeries = 10'000;
constexpr size_t kMaxKinds = 256, kMaxGoals = 64;

constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr int64_t kMaxValues = int64_t{1} << 25;
constexpr int kMaxDepth = 12;

// A value, and where it stands, for messages.
class Field {
 public:
  Field(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  [[noreturn]] void Refuse(const std::string& must) const {
    throw std::runtime_error((path_.empty() ? "the file" : path_) + " " + must);
  }

  Field operator[](const char* key) const {
    if (!json_.is_object()) Refuse("must be an object");
    const auto found = json_.find(key);
    const std::string path = path_.empty() ? key : path_ + "." + key;
    if (found == json_.end()) throw std::runtime_error(path + " is missing");
    return Field(*found, path);
  }

  bool IsNull() const { return json_.is_null(); }

  int64_t Integer(int64_t least, int64_t greatest) const {
    const bool fits =
        json_.is_number_unsigned() ? json_.get<uint64_t>() <= INT64_MAX : json_.is_number_integer();
    if (!fits || json_.get<int64_t>() < least || json_.get<int64_t>() > greatest) {
      Refuse("must be a whole number from " + std::to_string(least) + " to " +
             std::to_string(greatest));
    }
    return json_.get<int64_t>();
  }

  int64_t Count() const { return Integer(0, kMaxCount); }
  int64_t Amount() const { return Integer(0, kMaxAmount); }

  double Real(double least, double greatest) const {
    const double value = json_.is_number() ? json_.get<double>() : std::nan("");
    if (!(value >= least && value <= greatest)) {
      char text[96];
      std::snprintf(text, sizeof(text), "must be a number from %g to %g", least, greatest);
      Refuse(text);
    }
    return value;
  }

  bool Bool() const {
    if (!json_.is_boolean()) Refuse("must be true or false");
    return json_.get<bool>();
  }

  std::string String() const {
    if (!json_.is_string()) Refuse("must be a string");
    return json_.get<std::string>();
  }

  // Calls `visit` with each element of an array.
  template <typename Visit>
  void Each(size_t most, Visit visit) const {
    if (!json_.is_array()) Refuse("must be an array");
    if (json_.size() > most) Refuse("must have at most " + std::to_string(most) + " elements");
    size_t i = 0;
    for (const Json& element : json_) {
      visit(Field(element, path_ + "[" + std::to_string(i++) + "]"));
    }
  }

  // Calls `visit` with each key of an object and its value.
  template <typename Visit>
  void EachMember(size_t most, Visit visit) const {
    if (!json_.is_object()) Refuse("must be an object");
    if (json_.size() > most) Refuse("must have at most " + std::to_string(most) + " members");
    for (auto member = json_.begin(); member != json_.end(); ++member) {
      visit(member.key(), Field(*member, path_ + "[\"" + member.key() + "\"]"));
    }
  }

  size_t Size(size_t most) const {
    if (!json_.is_array() || json_.size() > most) {
      Refuse("must be an array of at most " + std::to_string(most) + " elements");
    }
    return json_.size();
  }

  // Without the cost of a path for each: histograms hold most of a file's numbers.
  const Json& json() const { return json_; }

 private:
  const Json& json_;
  const std::string path_;
};

int64_t CountIn(const Json& json) {  // -1: none
  if (!json.is_number_integer()) return -1;
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return -1;
  return json.get<int64_t>();
}

std::vector<Histogram::Bucket> ReadBuckets(const Field& field) {
  const Field lowest = field["lowest_ns"], counts = field["counts"];
  const size_t size = lowest.Size(buckets::kCount);
  if (counts.Size(buckets::kCount) != size) counts.Refuse("must be as long as lowest_ns");
  std::vector<Histogram::Bucket> read(size);
  for (size_t i = 0; i < size; ++i) {
    const int64_t value = CountIn(lowest.json()[i]);
    const bool in_range = value >= 0 && value <= buckets::kHighestValue;
    read[i] = {in_range ? buckets::IndexOf(value) : 0, CountIn(counts.json()[i])};
    const std::string at = " (at its index " + std::to_string(i) + ")";
    if (!in_range || buckets::LowestOf(read[i].index) != value ||
        (i > 0 && read[i].index <= read[i - 1].index)) {
      lowest.Refuse("must hold lowest values of buckets, each above the one before" + at);
    }
    if (read[i].count < 1 || read[i].count > kMaxCount) {
      counts.Refuse("must hold whole numbers from 1 to " + std::to_string(kMaxCount) + at);
    }
  }
  return read;
}

Histogram ReadHistogram(const Field& field) {
  const std::vector<Histogram::Bucket> read = ReadBuckets(field);
  // At most 24,576 counts of 1e12: no overflow.
  int64_t count = 0;
  __extension__ typedef __int128 Wide;
  Wide least = 0, greatest = 0;
  for (const Histogram::Bucket& bucket : read) {
    count += bucket.count;
    least += Wide{bucket.count} * buckets::LowestOf(bucket.index);
    greatest += Wide{bucket.count} * buckets::HighestOf(bucket.index);
  }
  if (field["count"].Count() != count) field["count"].Refuse("must be the sum of counts");
  const int64_t min = field["min_ns"].Integer(0, buckets::kHighestValue);
  const int64_t max = field["max_ns"].Integer(min, buckets::kHighestValue);
  constexpr int64_t kMaxSum = std::numeric_limits<int64_t>::max();
  const int64_t sum = field["sum_ns"].Integer(0, kMaxSum);
  if (read.empty()) {
    if (min != 0 || max != 0 || sum != 0) field.Refuse("is empty, so its figures must be 0");
    return Histogram();
  }
  if (buckets::IndexOf(min) != read.front().index || buckets::IndexOf(max) != read.back().index) {
    field.Refuse("must have its min_ns in its first bucket and its max_ns in its last");
  }
  if (sum < kMaxSum ? sum < least || sum > greatest : greatest < kMaxSum) {
    field["sum_ns"].Refuse("must be a sum that values in these buckets can have");
  }
  return Histogram::Restore(read, min, max, sum);
}

std::array<int64_t, kOutcomes> ReadOutcomes(const Field& field) {
  std::array<int64_t, kOutcomes> outcomes{};
  for (int i = 0; i < kOutcomes; ++i) {
    outcomes[i] = field[NameOf(static_cast<Outcome>(i))].Count();
  }
  return outcomes;
}

std::map<std::string, int64_t> ReadCounts(const Field& field) {
  std::map<std::string, int64_t> counts;
  field.EachMember(kMaxKinds, [&](const std::string& name, const Field& count) {
    counts[name] = count.Count();
  });
  return counts;
}

Stages ReadStages(const Field& field) {
  Stages stages;
  stages.decode = ReadHistogram(field["decode"]);
  stages.queue = ReadHistogram(field["queue"]);
  stages.copy_in = ReadHistogram(field["copy_in"]);
  stages.compute = ReadHistogram(field["compute"]);
  stages.copy_out = ReadHistogram(field["copy_out"]);
  stages.server = ReadHistogram(field["server"]);
  stages.network = ReadHistogram(field["network"]);
  stages.predicted = field["predicted"].Count();
  stages.predicted_within = field["predicted_within"].Count();
  return stages;
}

Verified ReadVerified(const Field& field) {
  Verified verified;
  verified.asked = field["asked"].Count();
  verified.equal = field["equal"].Count();
  verified.different = field["different"].Count();
  verified.recomputed = field["recomputed"].Count();
  verified.error_e9 = ReadHistogram(field["error_e9"]);
  return verified;
}

Cell ReadCell(const Field& field, size_t goals) {
  Cell cell;
  cell.outcomes = ReadOutcomes(field["outcomes"]);
  cell.good = field["good"].Integer(0, cell.of(Outcome::kOk));
  field["above_goal"].Each(goals, [&](const Field& above) {
    cell.above_goal.push_back(above.Integer(0, cell.counted()));
  });
  // A class without goals may have an empty list, as may a cell without requests.
  if (!cell.above_goal.empty() && cell.above_goal.size() != goals) {
    field["above_goal"].Refuse("must have as many numbers as the class has latency goals");
  }
  cell.above_goal.resize(goals);
  cell.intended = ReadHistogram(field["intended"]);
  cell.service = ReadHistogram(field["service"]);
  cell.lag = ReadHistogram(field["lag"]);
  cell.refusal = ReadHistogram(field["refusal"]);
  cell.tokens = field["tokens"].Amount();
  cell.sequences = field["sequences"].Amount();
  cell.request_bytes = field["request_bytes"].Amount();
  cell.answer_bytes = field["answer_bytes"].Amount();
  cell.kernels = ReadCounts(field["kernels"]);
  cell.messages = ReadCounts(field["messages"]);
  cell.stages = ReadStages(field["stages"]);
  cell.verified = ReadVerified(field["verified"]);
  return cell;
}

Second ReadSecond(const Field& field) {
  Second second;
  second.outcomes = ReadOutcomes(field["outcomes"]);
  second.good = field["good"].Integer(0, second.outcomes[static_cast<int>(Outcome::kOk)]);
  second.max_lag_ns = field["max_lag_ns"].Integer(0, std::numeric_limits<int64_t>::max());
  second.in_flight = field["in_flight"].Count();
  second.intended = ReadHistogram(field["intended"]);
  return second;
}

Objective ReadObjective(const Field& field) {
  Objective objective;
  field["latencies"].Each(kMaxGoals, [&](const Field& goal) {
    LatencyGoal read;
    read.quantile = goal["quantile"].Real(0, 1);
    if (read.quantile == 0 || read.quantile == 1) {
      goal["quantile"].Refuse("must lie between 0 and 1");
    }
    read.limit =
        std::chrono::nanoseconds(goal["limit_ns"].Integer(0, std::numeric_limits<int64_t>::max()));
    objective.latencies.push_back(read);
  });
  const Field share = field["max_error_share"];
  if (!share.IsNull()) objective.max_error_share = share.Real(0, 1);
  return objective;
}

ClientLoad ReadClient(const Field& field) {
  ClientLoad client;
  client.seconds = field["seconds"].Real(0, 1e9);
  client.cpu_seconds = field["cpu_seconds"].Real(0, 1e15);
  client.busiest_thread = field["busiest_thread"].Real(0, 1e6);
  client.threads = static_cast<int>(field["threads"].Integer(0, 1'000'000));
  client.unfinished = field["unfinished"].Count();
  client.calibrated_rate = field["calibrated_rate"].Real(0, 1e15);
  return client;
}

std::map<std::string, double> ReadSeries(const Field& field) {
  constexpr double kGreatest = std::numeric_limits<double>::max();
  std::map<std::string, double> series;
  field.EachMember(kMaxSeries, [&](const std::string& name, const Field& value) {
    const std::string text = value.json().is_string() ? value.String() : "";
    series[name] = text == "NaN"    ? std::nan("")
                   : text == "+Inf" ? HUGE_VAL
                   : text == "-Inf" ? -HUGE_VAL
                                    : value.Real(-kGreatest, kGreatest);
  });
  return series;
}

ServerCounts ReadServer(const Field& field) {
  ServerCounts server;
  server.endpoint = field["endpoint"].String();
  server.calls = ReadOutcomes(field["calls"]);
  server.before = ReadSeries(field["before"]);
  server.after = ReadSeries(field["after"]);
  return server;
}

std::vector<std::string> ReadStrings(const Field& field, size_t most) {
  std::vector<std::string> strings;
  field.Each(most, [&](const Field& element) { strings.push_back(element.String()); });
  return strings;
}

void ReadPlan(const Field& root, RunData& run) {
  run.begun = root["begun"].String();
  run.client_version = root["client_version"].String();
  run.server_version = root["server_version"].String();
  run.asked_seconds = root["asked_seconds"].Real(0, 1e9);
  run.asked_rate = root["asked_rate"].Real(0, 1e15);
  run.open_loop = root["open_loop"].Bool();
  run.endpoints = ReadStrings(root["endpoints"], kMaxEndpoints);
  run.classes = ReadStrings(root["classes"], kMaxClasses);
  run.workload_toml = root["workload_toml"].String();
  if (run.endpoints.size() * run.classes.size() > kMaxCells) {
    root["cells"].Refuse("must be at most " + std::to_string(kMaxCells) + " in all");
  }
  root["objectives"].Each(kMaxClasses, [&](const Field& objective) {
    run.objectives.push_back(ReadObjective(objective));
  });
  if (run.objectives.size() != run.classes.size()) {
    root["objectives"].Refuse("must be as many as classes");
  }
}

void ReadMeasured(const Field& root, RunData& run) {
  root["cells"].Each(kMaxClasses, [&](const Field& of_class) {
    if (run.cells.size() == run.classes.size()) of_class.Refuse("belongs to no class");
    const size_t goals = run.objectives[run.cells.size()].latencies.size();
    auto& row = run.cells.emplace_back();
    of_class.Each(kMaxEndpoints, [&](const Field& cell) { row.push_back(ReadCell(cell, goals)); });
    if (row.size() != run.endpoints.size()) {
      of_class.Refuse("must have one element for each endpoint");
    }
  });
  if (run.cells.size() != run.classes.size()) root["cells"].Refuse("must be as many as classes");
  root["seconds"].Each(kMaxSeconds, [&](const Field& second) {
    auto& row = run.seconds.emplace_back();
    second.Each(kMaxClasses, [&](const Field& of_class) { row.push_back(ReadSecond(of_class)); });
    if (row.size() != run.classes.size()) second.Refuse("must have one element for each class");
  });
  root["clients"].Each(kMaxWorkers,
                       [&](const Field& client) { run.clients.push_back(ReadClient(client)); });
  root["servers"].Each(kMaxEndpoints,
                       [&](const Field& server) { run.servers.push_back(ReadServer(server)); });
}

}  // namespace

RunData FromJson(const nlohmann::ordered_json& json) {
  const Field root(json, "");
  if (!json.is_object() || !json.contains("format") || json["format"] != "castor-load run") {
    throw std::runtime_error(
        "this is no saved run: it must be an object whose \"format\" is "
        "\"castor-load run\", as castor-load writes it");
  }
  if (root["version"].Integer(0, INT64_MAX) != 1) {
    root["version"].Refuse("must be 1: a newer castor-load wrote this run, use that");
  }
  RunData run;
  ReadPlan(root, run);
  ReadMeasured(root, run);
  return run;
}

RunData ParseRun(std::string_view text) {
  if (text.size() > kMaxBytes) throw std::runtime_error("this is more than 256 MiB, and no run");
  int64_t values = 0;
  std::array<size_t, kMaxDepth + 2> members{};  // of the open object at each depth
  const auto bound = [&](int depth, Json::parse_event_t event, Json&) {
    if (depth > kMaxDepth) throw std::runtime_error("this is nested deeper than a run is");
    if (++values > kMaxValues) throw std::runtime_error("this holds more values than a run does");
    // A member is looked for among those before it: too many would take for ever.
    if (event == Json::parse_event_t::object_start) members[depth + 1] = 0;
    if (event == Json::parse_event_t::key && ++members[depth] > kMaxSeries) {
      throw std::runtime_error("this holds an object of more members than a run has");
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, bound);
  } catch (const Json::exception& error) {
    throw std::runtime_error(std::string("this is no JSON: ") + error.what());
  }
  return FromJson(json);
}

RunData LoadRun(const std::string& path) {
  auto file = client::InputFile::Open(path);
  if (!file.ok()) throw std::runtime_error(std::string(file.status().message()));
  std::string text;
  const absl::Status read = file->Append(kMaxBytes + 1, &text);
  if (!read.ok()) throw std::runtime_error(std::string(read.message()));
  try {
    return ParseRun(text);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(file->name() + ": " + error.what());
  }
}

}  // namespace castor::load

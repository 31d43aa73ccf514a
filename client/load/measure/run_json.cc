#include "client/load/measure/run_json.h"

#include <cmath>
#include <stdexcept>

#include "client/file.h"
#include "client/load/judge/verdict.h"
#include "client/load/measure/redact.h"

namespace castor::load {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const Histogram& histogram) {
  Json lowest = Json::array(), counts = Json::array();
  for (const Histogram::Bucket& bucket : histogram.Buckets()) {
    lowest.push_back(buckets::LowestOf(bucket.index));
    counts.push_back(bucket.count);
  }
  return {{"count", histogram.count()},     {"min_ns", histogram.min()},
          {"max_ns", histogram.max()},      {"sum_ns", histogram.sum()},
          {"lowest_ns", std::move(lowest)}, {"counts", std::move(counts)}};
}

Json ToJson(const std::array<int64_t, kOutcomes>& outcomes) {
  Json json = Json::object();
  for (int i = 0; i < kOutcomes; ++i) json[NameOf(static_cast<Outcome>(i))] = outcomes[i];
  return json;
}

Json ToJson(const std::map<std::string, int64_t>& counts) {
  Json json = Json::object();
  for (const auto& [name, count] : counts) json[name] = count;
  return json;
}

Json ToJson(const Stages& stages) {
  return {{"decode", ToJson(stages.decode)},
          {"queue", ToJson(stages.queue)},
          {"copy_in", ToJson(stages.copy_in)},
          {"compute", ToJson(stages.compute)},
          {"copy_out", ToJson(stages.copy_out)},
          {"server", ToJson(stages.server)},
          {"network", ToJson(stages.network)},
          {"predicted", stages.predicted},
          {"predicted_within", stages.predicted_within}};
}

Json ToJson(const Verified& verified) {
  return {{"asked", verified.asked},
          {"equal", verified.equal},
          {"different", verified.different},
          {"recomputed", verified.recomputed},
          {"error_e9", ToJson(verified.error_e9)}};
}

Json ToJson(const Cell& cell) {
  return {{"outcomes", ToJson(cell.outcomes)}, {"good", cell.good},
          {"above_goal", cell.above_goal},     {"intended", ToJson(cell.intended)},
          {"service", ToJson(cell.service)},   {"lag", ToJson(cell.lag)},
          {"refusal", ToJson(cell.refusal)},   {"tokens", cell.tokens},
          {"sequences", cell.sequences},       {"request_bytes", cell.request_bytes},
          {"answer_bytes", cell.answer_bytes}, {"kernels", ToJson(cell.kernels)},
          {"messages", ToJson(cell.messages)}, {"stages", ToJson(cell.stages)},
          {"verified", ToJson(cell.verified)}};
}

Json ToJson(const Second& second) {
  return {{"outcomes", ToJson(second.outcomes)},
          {"good", second.good},
          {"max_lag_ns", second.max_lag_ns},
          {"in_flight", second.in_flight},
          {"intended", ToJson(second.intended)}};
}

template <typename T>
Json ToJson(const std::vector<std::vector<T>>& table) {
  Json json = Json::array();
  for (const auto& row : table) {
    Json& cells = json.emplace_back(Json::array());
    for (const T& cell : row) cells.push_back(ToJson(cell));
  }
  return json;
}

Json ToJson(const Objective& objective) {
  Json goals = Json::array();
  for (const LatencyGoal& goal : objective.latencies) {
    goals.push_back({{"quantile", goal.quantile}, {"limit_ns", goal.limit.count()}});
  }
  Json json = {{"latencies", std::move(goals)}, {"max_error_share", nullptr}};
  if (objective.max_error_share) json["max_error_share"] = *objective.max_error_share;
  return json;
}

Json ToJson(const ClientLoad& client) {
  return {{"seconds", client.seconds},
          {"cpu_seconds", client.cpu_seconds},
          {"busiest_thread", client.busiest_thread},
          {"threads", client.threads},
          {"unfinished", client.unfinished},
          {"calibrated_rate", client.calibrated_rate}};
}

// JSON has no such numbers, and metrics do: they are written as metrics write them.
Json ToJson(const std::map<std::string, double>& series) {
  Json json = Json::object();
  for (const auto& [name, value] : series) {
    if (std::isfinite(value)) {
      json[name] = value;
    } else {
      json[name] = std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
    }
  }
  return json;
}

Json ToJson(const ServerCounts& server) {
  return {{"endpoint", server.endpoint},
          {"calls", ToJson(server.calls)},
          {"before", ToJson(server.before)},
          {"after", ToJson(server.after)}};
}

Json ToJson(const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& finding : findings) {
    json.push_back({{"rule", finding.rule}, {"passed", finding.passed}, {"text", finding.text}});
  }
  return json;
}

Json ToJson(const Verdict& verdict) {
  return {{"valid", verdict.valid()},
          {"met", verdict.met()},
          {"validity", ToJson(verdict.validity)},
          {"objectives", ToJson(verdict.objectives)}};
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
  return {{"planned", cell.planned()},
          {"rate", rate(cell.planned())},
          {"ok_rate", rate(cell.of(Outcome::kOk))},
          {"goodput", rate(cell.good)},
          {"error_share", cell.error_share()},
          {"outcomes", ToJson(cell.outcomes)},
          {"intended", Milliseconds(cell.intended)},
          {"service", Milliseconds(cell.service)},
          {"lag", Milliseconds(cell.lag)}};
}

Json SummaryOf(const RunData& run) {
  const double seconds = run.MeasuredSeconds();
  Json classes = Json::object();
  for (size_t i = 0; i < run.classes.size(); ++i) {
    classes[run.classes[i]] = SummaryOf(run.OfClass(i), seconds);
  }
  return {{"total", SummaryOf(run.Total(), seconds)}, {"classes", std::move(classes)}};
}

// ---- text

bool HoldsObjects(const Json& json) {
  for (const Json& value : json) {
    if (value.is_object() || (value.is_array() && HoldsObjects(value))) return true;
  }
  return false;
}

std::string Compact(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void AppendText(const Json& json, const std::string& indent, std::string& text) {
  if (!json.is_structured() || !HoldsObjects(json)) {
    text += Compact(json);
    return;
  }
  const std::string inner = indent + " ";
  text += json.is_object() ? "{" : "[";
  for (auto element = json.begin(); element != json.end(); ++element) {
    text += element == json.begin() ? "\n" : ",\n";
    text += inner;
    if (json.is_object()) text += Compact(Json(element.key())) + ": ";
    AppendText(*element, inner, text);
  }
  text += "\n" + indent + (json.is_object() ? "}" : "]");
}

}  // namespace

nlohmann::ordered_json ToJson(const RunData& run, const Verdict* verdict) {
  Json objectives = Json::array(), clients = Json::array(), servers = Json::array();
  for (const Objective& objective : run.objectives) objectives.push_back(ToJson(objective));
  for (const ClientLoad& client : run.clients) clients.push_back(ToJson(client));
  for (const ServerCounts& server : run.servers) servers.push_back(ToJson(server));
  Json json = {{"format", "castor-load run"},
               {"version", 1},
               {"begun", run.begun},
               {"client_version", run.client_version},
               {"server_version", run.server_version},
               {"asked_seconds", run.asked_seconds},
               {"asked_rate", run.asked_rate},
               {"open_loop", run.open_loop},
               {"endpoints", run.endpoints},
               {"classes", run.classes},
               {"objectives", std::move(objectives)}};
  if (verdict != nullptr) json["verdict"] = ToJson(*verdict);
  json["summary"] = SummaryOf(run);
  json["clients"] = std::move(clients);
  json["servers"] = std::move(servers);
  json["workload_toml"] = RedactTokens(run.workload_toml);
  json["cells"] = ToJson(run.cells);
  json["seconds"] = ToJson(run.seconds);
  return json;
}

std::string FormatRun(const nlohmann::ordered_json& run) {
  std::string text;
  AppendText(run, "", text);
  return text + "\n";
}

void SaveRun(const std::string& path, const RunData& run, const Verdict* verdict) {
  const absl::Status written = client::WriteFile(path, {FormatRun(ToJson(run, verdict))});
  if (!written.ok()) throw std::runtime_error(std::string(written.message()));
}

}  // namespace castor::load

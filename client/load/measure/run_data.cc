#include "client/load/measure/run_data.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace castor::load {
namespace {

constexpr size_t kMaxMessages = 32;
constexpr char kOtherMessages[] = "(other messages)";

template <typename Counts>
void AddCounts(const Counts& from, Counts& to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

void AddCounts(const std::vector<int64_t>& from, std::vector<int64_t>& to) {
  to.resize(std::max(to.size(), from.size()));
  for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

void AddCounts(const std::map<std::string, int64_t>& from, std::map<std::string, int64_t>& to) {
  for (const auto& [name, count] : from) to[name] += count;
}

// No count gets lost when there are too many kinds.
void AddMessages(const std::map<std::string, int64_t>& from, std::map<std::string, int64_t>& to) {
  for (const auto& [message, count] : from) {
    // One place is kept for what has none.
    const bool room = to.size() + 1 < kMaxMessages || to.contains(message);
    to[room ? message : kOtherMessages] += count;
  }
}

// Counters only grow, so the first and the last of all readings are the least and the greatest.
void AddReadings(const ServerCounts& from, ServerCounts& to) {
  AddCounts(from.calls, to.calls);
  if (to.endpoint.empty()) to.endpoint = from.endpoint;
  for (const auto& [series, value] : from.before) {
    const auto [place, added] = to.before.emplace(series, value);
    if (!added) place->second = std::min(place->second, value);
  }
  for (const auto& [series, value] : from.after) {
    const auto [place, added] = to.after.emplace(series, value);
    if (!added) place->second = std::max(place->second, value);
  }
}

bool Same(const LatencyGoal& a, const LatencyGoal& b) {
  return a.quantile == b.quantile && a.limit == b.limit;
}

bool Same(const Objective& a, const Objective& b) {
  return a.max_error_share == b.max_error_share &&
         std::equal(a.latencies.begin(), a.latencies.end(), b.latencies.begin(), b.latencies.end(),
                    [](const LatencyGoal& x, const LatencyGoal& y) { return Same(x, y); });
}

bool Same(const std::vector<Objective>& a, const std::vector<Objective>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Objective& x, const Objective& y) { return Same(x, y); });
}

[[noreturn]] void Differ(const std::string& what) {
  throw std::runtime_error("these runs do not merge: their " + what +
                           " differ; all workers must run parts of one workload");
}

void AddToAll(const std::vector<std::vector<Cell>>& from, std::vector<std::vector<Cell>>& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    for (size_t k = 0; k < from[i].size(); ++k) to[i][k].Add(from[i][k]);
  }
}

bool SameShape(const std::vector<std::vector<Cell>>& a, const std::vector<std::vector<Cell>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.size() == y.size(); });
}

}  // namespace

const char* NameOf(Outcome outcome) {
  static constexpr const char* kNames[kOutcomes] = {"ok",        "refused", "expired",
                                                    "cancelled", "failed",  "dropped"};
  return kNames[static_cast<int>(outcome)];
}

void Stages::Add(const Stages& other) {
  decode.Add(other.decode);
  queue.Add(other.queue);
  copy_in.Add(other.copy_in);
  compute.Add(other.compute);
  copy_out.Add(other.copy_out);
  server.Add(other.server);
  network.Add(other.network);
  predicted += other.predicted;
  predicted_within += other.predicted_within;
}

void Verified::Add(const Verified& other) {
  asked += other.asked;
  equal += other.equal;
  different += other.different;
  recomputed += other.recomputed;
  error_e9.Add(other.error_e9);
}

int64_t Cell::planned() const {
  return std::accumulate(outcomes.begin(), outcomes.end(), int64_t{0});
}

int64_t Cell::counted() const { return planned() - of(Outcome::kCancelled); }

double Cell::error_share() const {
  if (counted() == 0) return 0;
  return static_cast<double>(counted() - of(Outcome::kOk)) / static_cast<double>(counted());
}

void Cell::Add(const Cell& other) {
  AddCounts(other.outcomes, outcomes);
  good += other.good;
  intended.Add(other.intended);
  service.Add(other.service);
  lag.Add(other.lag);
  refusal.Add(other.refusal);
  AddCounts(other.above_goal, above_goal);
  tokens += other.tokens;
  sequences += other.sequences;
  request_bytes += other.request_bytes;
  answer_bytes += other.answer_bytes;
  AddCounts(other.kernels, kernels);
  AddMessages(other.messages, messages);
  stages.Add(other.stages);
  verified.Add(other.verified);
}

void Second::Add(const Second& other) {
  AddCounts(other.outcomes, outcomes);
  good += other.good;
  intended.Add(other.intended);
  max_lag_ns = std::max(max_lag_ns, other.max_lag_ns);
  in_flight += other.in_flight;
}

Cell RunData::OfClass(size_t cls) const {
  Cell sum;
  for (const Cell& cell : cells[cls]) sum.Add(cell);
  return sum;
}

Cell RunData::OfEndpoint(size_t endpoint) const {
  Cell sum;
  for (const auto& of_class : cells) sum.Add(of_class[endpoint]);
  sum.above_goal.clear();
  return sum;
}

Cell RunData::Total() const {
  Cell sum;
  for (size_t i = 0; i < cells.size(); ++i) sum.Add(OfClass(i));
  sum.above_goal.clear();
  return sum;
}

Second RunData::OfSecond(size_t second) const {
  Second sum;
  for (const Second& of_class : seconds[second]) sum.Add(of_class);
  return sum;
}

double RunData::MeasuredSeconds() const {
  double longest = 0;
  for (const ClientLoad& client : clients) longest = std::max(longest, client.seconds);
  return longest > 0 ? longest : asked_seconds;
}

void RunData::Merge(const RunData& other) {
  if (classes != other.classes) Differ("classes");
  if (!Same(objectives, other.objectives)) Differ("objectives");
  if (endpoints != other.endpoints) Differ("endpoints");
  if (open_loop != other.open_loop) Differ("kinds of load (open and closed loop)");
  if (!SameShape(cells, other.cells)) Differ("numbers of cells");

  if (other.begun < begun) begun = other.begun;
  asked_seconds = std::max(asked_seconds, other.asked_seconds);
  asked_rate += other.asked_rate;
  AddToAll(other.cells, cells);
  seconds.resize(std::max(seconds.size(), other.seconds.size()),
                 std::vector<Second>(classes.size()));
  for (size_t i = 0; i < other.seconds.size(); ++i) {
    for (size_t k = 0; k < classes.size(); ++k) seconds[i][k].Add(other.seconds[i][k]);
  }
  clients.insert(clients.end(), other.clients.begin(), other.clients.end());
  servers.resize(std::max(servers.size(), other.servers.size()));
  for (size_t i = 0; i < other.servers.size(); ++i) AddReadings(other.servers[i], servers[i]);
}

}  // namespace castor::load

#include "client/load/results/run_data.h"

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

[[noreturn]] void Refuse(const std::string& why) {
  throw std::runtime_error("these runs do not add up: " + why +
                           "; give the runs of one plan, each with another --share");
}

void AddToAll(const std::vector<std::vector<Cell>>& from, std::vector<std::vector<Cell>>& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    for (size_t k = 0; k < from[i].size(); ++k) to[i][k].Add(from[i][k]);
  }
}

}  // namespace

const char* NameOf(Outcome outcome) {
  static constexpr const char* kNames[kOutcomes] = {"ok",        "refused", "expired",
                                                    "cancelled", "failed",  "dropped"};
  return kNames[static_cast<size_t>(outcome)];
}

int64_t CountedOf(const Outcomes& outcomes) {
  return std::accumulate(outcomes.begin(), outcomes.end(), int64_t{0}) -
         outcomes[static_cast<size_t>(Outcome::kCancelled)];
}

void Stages::Add(const Stages& other) {
  queue.Add(other.queue);
  compute.Add(other.compute);
  server.Add(other.server);
  network.Add(other.network);
}

int64_t Cell::planned() const {
  return std::accumulate(outcomes.begin(), outcomes.end(), int64_t{0});
}

double Cell::error_share() const {
  if (counted() == 0) return 0;
  return static_cast<double>(counted() - of(Outcome::kOk)) / static_cast<double>(counted());
}

void Cell::CountMessage(const std::string& message, int64_t times) {
  // One place is reserved for all kinds that have none.
  const bool room = messages.size() + 1 < kMaxMessages || messages.contains(message);
  messages[room ? message : kOtherMessages] += times;
}

void Cell::Add(const Cell& other) {
  AddCounts(other.outcomes, outcomes);
  good += other.good;
  intended.Add(other.intended);
  service.Add(other.service);
  lag.Add(other.lag);
  AddCounts(other.above_goal, above_goal);
  tokens += other.tokens;
  AddCounts(other.kernels, kernels);
  for (const auto& [message, count] : other.messages) CountMessage(message, count);
  stages.Add(other.stages);
  verified.equal += other.verified.equal;
  verified.different += other.verified.different;
}

void Second::Add(const Second& other) {
  AddCounts(other.outcomes, outcomes);
  good += other.good;
  intended.Add(other.intended);
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
  const auto check = [](bool same, const char* what) {
    if (!same) Refuse(std::string("their ") + what + " differ");
  };
  check(classes == other.classes, "classes");
  check(objectives == other.objectives, "objectives");
  check(endpoints == other.endpoints, "endpoints");
  check(open_loop == other.open_loop, "kinds of load (open and closed loop)");
  check(seed == other.seed, "seeds");
  for (const ClientLoad& here : clients) {
    for (const ClientLoad& there : other.clients) {
      check(here.shares == there.shares, "numbers of shares");
      if (here.share == there.share) {
        Refuse("share " + std::to_string(here.share) + "/" + std::to_string(here.shares) +
               " is there twice");
      }
    }
  }

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
  // The servers' counts include the calls of all shares, so they cannot be compared: see
  // verdict.cc.
  for (ServerCounts& server : servers) server = {};
}

}  // namespace castor::load

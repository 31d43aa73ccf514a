// Prints what each kind of traffic gets from the scheduler: run by hand, the table goes to a log.
//
//   build/tests/simulation/simulate_policies [SEED]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/simulation/simulation.h"

namespace castor::simulation {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int kKeys = 3;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// An open source of short requests that take `load` of the device, launches left out.
Source Short(double load, std::optional<Duration> deadline = std::nullopt) {
  constexpr int64_t kLow = 64, kHigh = 512;
  double mean = 0;
  for (int64_t n = kLow; n <= kHigh; ++n) mean += Seconds(AttentionTime(n)) / (kHigh - kLow + 1);
  return {.name = "64 to 512 tokens",
          .rate = load / mean,
          .draw = Attention(kLow, kHigh, kKeys, deadline)};
}

Source LongInFlight(int in_flight) {
  return {.name = "64K tokens", .in_flight = in_flight, .draw = Attention(65536, 65536, 1)};
}

Source Of(std::string tenant, Source source) {
  source.name = tenant;
  source.draw = [draw = source.draw, tenant](std::mt19937& random) {
    Request request = draw(random);
    request.tenant = tenant;
    return request;
  };
  return source;
}

// A text of one model: what a batch pays once is as much as a request takes itself.
constexpr Duration kModelLaunch = std::chrono::milliseconds(4);
Source Texts(double rate, std::optional<Duration> deadline, Duration work = kModelLaunch) {
  const auto draw = [deadline, work](std::mt19937&) {
    return Request{.batch_key = "model", .tokens = 20, .work = work, .deadline = deadline};
  };
  return {.name = "texts", .rate = rate, .draw = draw};
}

// Callers that send their next text soon after an answer.
Source TextCallers(int callers) {
  Source source = Texts(0, std::nullopt, std::chrono::milliseconds(1));
  source.in_flight = callers;
  source.think = std::chrono::microseconds(300);
  return source;
}

struct Case {
  Workload workload;
  Duration launch = Settings().launch;
};

std::vector<Case> Cases() {
  Source nine_in_ten = Short(0.0002);
  Source one_in_ten{
      .name = "64K tokens", .rate = nine_in_ten.rate / 9, .draw = Attention(65536, 65536, 1)};
  Source bursts = Short(0.5, seconds(1));
  bursts.burst = 200;
  std::vector<Case> cases = {
      {{"short, 30% load", {Short(0.3)}, minutes(10)}},
      {{"short, 30% load, beside 64K tokens without end", {Short(0.3), LongInFlight(1)}, hours(1)}},
      {{"90% short, 10% of 64K tokens", {nine_in_ten, one_in_ten}, hours(100)}},
      {{"bursts of 200, 50% load, deadline 1 s", {bursts}, minutes(10)}},
  };
  for (const double load : {0.5, 0.8, 0.95, 1.0, 2.0, 10.0}) {
    cases.push_back({{"short, deadline 1 s, load " + std::to_string(load).substr(0, 4),
                      {Short(load, seconds(1))},
                      minutes(1)}});
  }
  const Source modest = Of("modest", Short(0.25, seconds(1)));
  const Source modest_texts = Of("modest", Texts(50, seconds(1)));
  cases.push_back({{"one tenant, deadline 1 s", {modest}, minutes(5)}});
  cases.push_back({{"two tenants, one sends ten times its share",
                    {modest, Of("greedy", Short(5, seconds(1)))},
                    minutes(5)}});
  cases.push_back({{"one tenant's texts, deadline 1 s", {modest_texts}, minutes(5)}, kModelLaunch});
  cases.push_back({{"two tenants' texts, one sends ten times its share",
                    {modest_texts, Of("greedy", Texts(1250, seconds(1)))},
                    minutes(5)},
                   kModelLaunch});
  for (const int callers : {1, 2, 4, 16}) {
    cases.push_back({{"short texts, callers in a closed loop: " + std::to_string(callers),
                      {TextCallers(callers)},
                      minutes(1)},
                     kModelLaunch});
  }
  for (const double rate : {20, 100, 300}) {
    cases.push_back({{"short texts, per second: " + std::to_string(static_cast<int>(rate)),
                      {Texts(rate, std::nullopt, std::chrono::milliseconds(1))},
                      minutes(2)},
                     kModelLaunch});
  }
  return cases;
}

// Parts of today's policy, so that each shows what it is for.
struct Policy {
  const char* name;
  bool predicts;
  bool passes;
};
constexpr Policy kPolicies[] = {
    {"no predictions", false, false}, {"no passing", true, false}, {"all", true, true}};

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at =
      values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

void Print(const Case& row, const Policy& policy, uint32_t seed) {
  const Workload& workload = row.workload;
  Settings settings = {.launch = row.launch, .predicts = policy.predicts, .passes = policy.passes};
  Simulation simulation(workload, settings, seed);
  const std::vector<Outcome> outcomes = simulation.Run();
  for (size_t source = 0; source < workload.sources.size(); ++source) {
    std::vector<double> ms;
    int64_t all = 0, useful = 0, refused = 0, expired = 0, late = 0;
    for (const Outcome& outcome : outcomes) {
      if (outcome.request.source != source) continue;
      ++all;
      useful += outcome.useful();
      refused += outcome.fate == Fate::kRefused;
      expired += outcome.fate == Fate::kExpired;
      late += outcome.fate == Fate::kAnswered && !outcome.useful();
      if (outcome.fate == Fate::kAnswered) ms.push_back(Seconds(outcome.latency()) * 1e3);
    }
    const double length = Seconds(workload.length);
    std::printf("| %s | %s | %s | %.4g | %.4g | %.4g | %.4g | %.1f | %.2f | %.2f |\n",
                source == 0 ? workload.name.c_str() : "", source == 0 ? policy.name : "",
                workload.sources[source].name.c_str(), static_cast<double>(all) / length,
                static_cast<double>(useful) / length, Percentile(ms, 0.5), Percentile(ms, 0.99),
                1e2 * static_cast<double>(refused) / static_cast<double>(all),
                1e2 * static_cast<double>(expired) / static_cast<double>(all),
                1e2 * static_cast<double>(late) / static_cast<double>(all));
  }
}

void PrintAll(uint32_t seed) {
  std::printf(
      "| traffic | policy | source | sent/s | in time/s | p50, ms | p99, ms | refused, %% | "
      "expired, %% | late, %% |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Case& row : Cases()) {
    for (const Policy& policy : kPolicies) Print(row, policy, seed);
  }
}

}  // namespace
}  // namespace castor::simulation

int main(int argc, char** argv) {
  castor::simulation::PrintAll(argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 1);
}

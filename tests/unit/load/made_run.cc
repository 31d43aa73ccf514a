#include "tests/unit/load/made_run.h"

#include <algorithm>
#include <cmath>

namespace castor::load {
namespace {

int64_t Below(std::mt19937& random, int64_t bound) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
}

Histogram RandomHistogram(std::mt19937& random) {
  Histogram histogram;
  const int64_t values = Below(random, 4) == 0 ? 0 : Below(random, 300);
  for (int64_t i = 0; i < values; ++i) {
    const int64_t times = Below(random, 20) == 0 ? 1 + Below(random, 5000) : 1;
    histogram.Record(int64_t{1} << Below(random, 43), times);
    histogram.Record(Below(random, 50'000'000));
  }
  return histogram;
}

std::array<int64_t, kOutcomes> RandomOutcomes(std::mt19937& random) {
  std::array<int64_t, kOutcomes> outcomes{};
  for (int64_t& count : outcomes) count = Below(random, 1000);
  return outcomes;
}

Cell RandomCell(std::mt19937& random, size_t goals) {
  Cell cell;
  cell.outcomes = RandomOutcomes(random);
  cell.good = Below(random, cell.of(Outcome::kOk) + 1);
  for (size_t i = 0; i < goals; ++i) {
    cell.above_goal.push_back(Below(random, cell.counted() + 1));
  }
  for (Histogram* const histogram :
       {&cell.intended, &cell.service, &cell.lag, &cell.refusal, &cell.stages.decode,
        &cell.stages.queue, &cell.stages.copy_in, &cell.stages.compute, &cell.stages.copy_out,
        &cell.stages.server, &cell.stages.network, &cell.verified.error_e9}) {
    *histogram = RandomHistogram(random);
  }
  for (int64_t* const count :
       {&cell.tokens, &cell.sequences, &cell.request_bytes, &cell.answer_bytes,
        &cell.stages.predicted, &cell.stages.predicted_within, &cell.verified.asked,
        &cell.verified.equal, &cell.verified.different, &cell.verified.recomputed}) {
    *count = Below(random, 1'000'000'000);
  }
  cell.kernels = {{"vanilla", Below(random, 100)}, {"cast", Below(random, 100)}};
  cell.messages = {{"the queue is \"full\"\n", Below(random, 100)}};
  return cell;
}

}  // namespace

RunData EmptyRun(int seconds) {
  RunData run;
  run.begun = "2026-01-02T03:04:05.250Z";
  run.endpoints = {"127.0.0.1:50051"};
  run.classes = {"short"};
  run.objectives = {{.latencies = {{.quantile = 0.99, .limit = std::chrono::milliseconds(50)}},
                     .max_error_share = 0.01}};
  run.asked_seconds = seconds;
  run.asked_rate = 100;
  run.cells.assign(1, std::vector<Cell>(1));
  run.cells[0][0].above_goal = {0};
  run.seconds.assign(static_cast<size_t>(seconds), std::vector<Second>(1));
  run.clients = {{.seconds = static_cast<double>(seconds),
                  .cpu_seconds = 1,
                  .busiest_thread = 0.1,
                  .threads = 2}};
  return run;
}

void Count(const Request& request, RunData& run, int64_t times) {
  Cell& cell = run.cells[request.cls][0];
  Second& second = run.seconds[static_cast<size_t>(request.second)][request.cls];
  const auto& goals = run.objectives[request.cls].latencies;
  cell.above_goal.resize(goals.size());
  cell.outcomes[static_cast<int>(request.outcome)] += times;
  second.outcomes[static_cast<int>(request.outcome)] += times;
  if (request.outcome != Outcome::kDropped) {
    cell.lag.Record(request.lag.count(), times);
    second.max_lag_ns = std::max(second.max_lag_ns, request.lag.count());
  }
  if (request.outcome == Outcome::kCancelled) return;
  const bool ok = request.outcome == Outcome::kOk;
  bool good = ok;
  for (size_t i = 0; i < goals.size(); ++i) {
    if (ok && request.latency <= goals[i].limit) continue;
    cell.above_goal[i] += times;
    good = false;
  }
  if (!ok) return;
  cell.intended.Record(request.latency.count(), times);
  cell.service.Record((request.latency - request.lag).count(), times);
  second.intended.Record(request.latency.count(), times);
  cell.good += good ? times : 0;
  second.good += good ? times : 0;
}

RunData WanderingRun(const Wandering& server, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::poisson_distribution<int> arrivals(server.rate);
  RunData run = EmptyRun(server.seconds);
  run.asked_rate = server.rate;
  double level = normal(random);
  for (int second = 0; second < server.seconds; ++second) {
    const double keep = server.correlation;
    level = keep * level + std::sqrt(1 - keep * keep) * normal(random);
    const int requests = arrivals(random);
    for (int i = 0; i < requests; ++i) {
      const double ms =
          server.median_ms * std::exp(server.level_sigma * level + server.sigma * normal(random));
      Count({.second = second, .latency = std::chrono::nanoseconds(std::llround(ms * 1e6))}, run);
    }
  }
  return run;
}

RunData RandomRun(std::mt19937& random) {
  RunData run;
  run.workload_toml = "# two classes\n[[class]]\nname = \"short\"\n";
  run.begun = "2026-01-02T03:04:05Z";
  run.client_version = "0.1.0";
  run.server_version = "0.1.0+\"x\"";
  run.endpoints = {"a:1", "b:2", "c:3"};
  run.classes = {"short", "long, with a comma"};
  run.objectives.resize(2);
  run.objectives[0].latencies = {{0.99, std::chrono::milliseconds(50)},
                                 {0.5, std::chrono::microseconds(1500)}};
  run.objectives[1].max_error_share = 0.001;
  run.asked_seconds = 2.5;
  run.asked_rate = 100.0 / 3;
  run.open_loop = Below(random, 2) == 0;
  for (const Objective& objective : run.objectives) {
    auto& row = run.cells.emplace_back();
    for (int i = 0; i < 3; ++i) row.push_back(RandomCell(random, objective.latencies.size()));
  }
  for (int i = 0; i < 3; ++i) {
    auto& row = run.seconds.emplace_back();
    for (int k = 0; k < 2; ++k) {
      row.push_back({.outcomes = RandomOutcomes(random),
                     .good = 0,
                     .intended = RandomHistogram(random),
                     .max_lag_ns = Below(random, 1'000'000'000),
                     .in_flight = Below(random, 1000)});
    }
  }
  run.clients = {{.seconds = 2.5,
                  .cpu_seconds = 0.1 * static_cast<double>(Below(random, 100)),
                  .busiest_thread = 1.0 / 3,
                  .threads = 4,
                  .unfinished = Below(random, 10),
                  .calibrated_rate = 12345.678}};
  run.servers.resize(3);
  run.servers[1] = {.endpoint = "b:9090",
                    .before = {{"castor_requests_total{code=\"OK\"}", 1e17}, {"x", -HUGE_VAL}},
                    .after = {{"castor_requests_total{code=\"OK\"}", 0.1}, {"x", HUGE_VAL}},
                    .calls = RandomOutcomes(random)};
  return run;
}

}  // namespace castor::load

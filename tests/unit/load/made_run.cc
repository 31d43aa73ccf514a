#include "tests/unit/load/made_run.h"

#include <cmath>
#include <random>

namespace castor::load {

RunData EmptyRun(int seconds) {
  RunData run;
  run.begun = "2026-01-02T03:04:05Z";
  run.endpoints = {"127.0.0.1:50051"};
  run.classes = {"short"};
  run.objectives = {{.latencies = {{.quantile = 0.99, .limit = std::chrono::milliseconds(50)}},
                     .max_error_share = 0.01}};
  run.asked_seconds = seconds;
  run.asked_rate = 100;
  run.cells.assign(1, std::vector<Cell>(1));
  run.cells[0][0].above_goal = {0};
  run.seconds.assign(static_cast<size_t>(seconds), std::vector<Second>(1));
  run.clients = {
      {.seconds = static_cast<double>(seconds), .cpu_seconds = 1, .busiest_thread = 0.1}};
  run.servers.resize(1);
  return run;
}

void Count(const MadeRequest& request, RunData& run, int64_t times) {
  Cell& cell = run.cells[0][0];
  Second& second = run.seconds[static_cast<size_t>(request.second)][0];
  cell.outcomes[static_cast<size_t>(request.outcome)] += times;
  second.outcomes[static_cast<size_t>(request.outcome)] += times;
  if (request.outcome == Outcome::kDropped || request.outcome == Outcome::kCancelled) {
    if (request.outcome == Outcome::kDropped) cell.above_goal[0] += times;
    return;
  }
  cell.lag.Record(request.lag.count(), times);
  const bool ok = request.outcome == Outcome::kOk;
  const bool good = ok && request.latency <= run.objectives[0].latencies[0].limit;
  if (!good) cell.above_goal[0] += times;
  if (!ok) return;
  cell.intended.Record(request.latency.count(), times);
  cell.service.Record((request.latency - request.lag).count(), times);
  second.intended.Record(request.latency.count(), times);
  cell.good += good ? times : 0;
  second.good += good ? times : 0;
}

RunData GoodRun(int seconds) {
  RunData run = EmptyRun(seconds);
  for (int i = 0; i < seconds; ++i) {
    Count({.second = i}, run, 99);
    Count({.second = i, .latency = std::chrono::milliseconds(30)}, run);
    run.seconds[static_cast<size_t>(i)][0].in_flight = 5 + i % 3;
  }
  return run;
}

RunData NoisyRun(double slowness, double jitter, uint64_t seed) {
  std::mt19937_64 random(seed);
  RunData run = EmptyRun(60);
  for (int second = 0; second < 60; ++second) {
    const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    const double level = slowness * (1 + jitter * (2 * unit() - 1));
    for (int i = 0; i < 200; ++i) {
      const double ms = 10 * level * (1 - 0.3 * std::log(1 - unit()));
      Count({.second = second, .latency = std::chrono::nanoseconds(std::llround(ms * 1e6))}, run);
    }
  }
  return run;
}

}  // namespace castor::load

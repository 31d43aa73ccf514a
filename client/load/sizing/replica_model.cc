#include "client/load/sizing/replica_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace castor::load {
namespace {

constexpr double kMaxErrors = 0.01;       // share, of a cell that is compared
constexpr double kMaxUtilization = 0.97;  // beyond, latency is a matter of how long one waits
constexpr double kMaxIdle = 0.25;  // of the capacity, for the cell that stands for an idle server
constexpr size_t kMinCells = 3;
constexpr int64_t kTrialRequests = 40'000;
constexpr int64_t kFinalRequests = 400'000;

double Ratio(int64_t modelled, int64_t measured) {
  return std::log(static_cast<double>(std::max<int64_t>(modelled, 1)) /
                  static_cast<double>(std::max<int64_t>(measured, 1)));
}

// Ways to share a replica's time that give this capacity, for requests that take `mean` alone.
std::vector<Replica> Candidates(double mean, double capacity) {
  std::vector<Replica> candidates;
  for (const int lanes : {1, 2, 4, 8}) {
    // Requests one by one: the capacity says how long each occupies its lane.
    const double alone = lanes / (mean * capacity);
    if (alone <= 1) candidates.push_back({.lanes = lanes, .occupied = alone});
    for (const int batch : {2, 4, 8, 16, 32, 64}) {
      for (const double occupied : {0.2, 0.4, 0.6, 0.8, 1.0}) {
        const double longest = lanes * batch / (occupied * mean * capacity);  // over a lone one
        const double marginal = (longest - 1) / (batch - 1);
        // Above 1, requests that wait together slow one another down.
        if (marginal < 0 || marginal > 2) continue;
        candidates.push_back(
            {.lanes = lanes, .max_batch = batch, .occupied = occupied, .marginal = marginal});
      }
    }
  }
  return candidates;
}

FittedPoint Simulate(const ReplicaModel& model, const Replica& replica, const MeasuredCell& cell,
                     int64_t requests, uint64_t seed) {
  const QueueResult result = SimulateQueues({.times = model.times,
                                             .replica = replica,
                                             .rate = cell.rate,
                                             .requests = requests,
                                             .seed = seed});
  return {.rate = cell.rate,
          .measured_p50_ns = cell.latency.ValueAt(0.5),
          .measured_p99_ns = cell.latency.ValueAt(0.99),
          .modelled_p50_ns = result.latency.ValueAt(0.5),
          .modelled_p99_ns = result.latency.ValueAt(0.99)};
}

double Misfit(const FittedPoint& point) {
  const double p50 = Ratio(point.modelled_p50_ns, point.measured_p50_ns);
  const double p99 = Ratio(point.modelled_p99_ns, point.measured_p99_ns);
  return p50 * p50 + p99 * p99;
}

}  // namespace

ReplicaModel FitReplica(const std::vector<MeasuredCell>& cells, uint64_t seed) {
  if (cells.empty() || cells.front().latency.empty()) {
    throw std::invalid_argument("the sweep's lowest rate has no answers to take times from");
  }
  ReplicaModel model{.times = ServiceTimes(cells.front().latency)};
  bool saturated = false;
  for (const MeasuredCell& cell : cells) {
    model.capacity = std::max(model.capacity, cell.throughput);
    saturated |= cell.throughput < 0.9 * cell.rate;
  }
  if (!saturated) {
    model.warnings.push_back(
        "the sweep has no rate at which the server was saturated: its capacity may be higher than "
        "the highest rate, and fewer replicas do. Sweep higher rates");
  }
  std::vector<const MeasuredCell*> compared;
  for (const MeasuredCell& cell : cells) {
    if (cell.error_share > kMaxErrors || cell.rate > kMaxUtilization * model.capacity) continue;
    compared.push_back(&cell);
  }
  if (compared.size() < kMinCells) {
    throw std::invalid_argument(
        "the sweep has " + std::to_string(compared.size()) +
        " rates below saturation and almost without errors, and a model needs at least 3: sweep "
        "more rates below the highest throughput");
  }
  if (cells.front().rate > kMaxIdle * model.capacity) {
    model.warnings.push_back(
        "the sweep's lowest rate is more than a quarter of the capacity, so that its latency is "
        "not "
        "that of an idle server. Sweep lower rates");
  }

  double best = std::numeric_limits<double>::infinity();
  for (const Replica& candidate : Candidates(model.times.mean(), model.capacity)) {
    double misfit = 0;
    for (const MeasuredCell* cell : compared) {
      misfit += Misfit(Simulate(model, candidate, *cell, kTrialRequests, seed));
      if (misfit >= best) break;
    }
    if (misfit < best) {
      best = misfit;
      model.replica = candidate;
    }
  }
  if (std::isinf(best)) {
    throw std::invalid_argument(
        "no model of the server gives its measured throughput: it answered fewer than half of what "
        "its latency at the lowest rate allows. Check that nothing else ran beside the sweep");
  }
  for (const MeasuredCell* cell : compared) {
    model.points.push_back(Simulate(model, model.replica, *cell, kFinalRequests, seed + 1));
    const FittedPoint& point = model.points.back();
    model.error =
        std::max(model.error, std::abs(Ratio(point.modelled_p99_ns, point.measured_p99_ns)));
  }
  return model;
}

}  // namespace castor::load

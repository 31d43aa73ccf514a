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
constexpr double kMaxLight = 0.5;         // of the capacity, for a cell to be lightly loaded
constexpr double kQuicker = 0.95;         // of the median: less is chance
constexpr size_t kMinCells = 3;
constexpr int64_t kTrialRequests = 40'000;
constexpr int64_t kFinalRequests = 400'000;

double Ratio(int64_t modelled, int64_t measured) {
  return std::log(static_cast<double>(std::max<int64_t>(modelled, 1)) /
                  static_cast<double>(std::max<int64_t>(measured, 1)));
}

// Ways to share a replica's time that give this capacity, for requests that take `mean` alone.
void AddCandidates(double mean, double capacity, std::vector<Replica>* candidates) {
  for (const int lanes : {1, 2, 4, 8}) {
    // Requests one by one: the capacity says how long each occupies its lane.
    const double alone = lanes / (mean * capacity);
    if (alone <= 1) candidates->push_back({.lanes = lanes, .occupied = alone});
    for (const int batch : {2, 4, 8, 16, 32, 64}) {
      for (const double occupied : {0.2, 0.4, 0.6, 0.8, 1.0}) {
        const double longest = lanes * batch / (occupied * mean * capacity);  // over a lone one
        const double marginal = (longest - 1) / (batch - 1);
        // Above 1, requests that wait together slow one another down.
        if (marginal < 0 || marginal > 2) continue;
        candidates->push_back(
            {.lanes = lanes, .max_batch = batch, .occupied = occupied, .marginal = marginal});
      }
    }
  }
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

// The cells from that on with the lowest median among the lightly loaded ones. Enough are left.
std::vector<const MeasuredCell*> FromTheQuickest(const std::vector<const MeasuredCell*>& cells,
                                                 double capacity) {
  size_t quickest = 0;
  for (size_t i = 1; i + kMinCells <= cells.size(); ++i) {
    if (cells[i]->rate > kMaxLight * capacity) break;
    const auto median = static_cast<double>(cells[quickest]->latency.ValueAt(0.5));
    if (static_cast<double>(cells[i]->latency.ValueAt(0.5)) < kQuicker * median) quickest = i;
  }
  return {cells.begin() + static_cast<std::ptrdiff_t>(std::min(quickest, cells.size())),
          cells.end()};
}

double Misfit(const FittedPoint& point) {
  const double p50 = Ratio(point.modelled_p50_ns, point.measured_p50_ns);
  const double p99 = Ratio(point.modelled_p99_ns, point.measured_p99_ns);
  return p50 * p50 + p99 * p99;
}

}  // namespace

ReplicaModel FitReplica(const std::vector<MeasuredCell>& cells, uint64_t seed) {
  double capacity = 0;
  bool saturated = false;
  for (const MeasuredCell& cell : cells) {
    capacity = std::max(capacity, cell.throughput);
    saturated |= cell.throughput < 0.9 * cell.rate;
  }
  std::vector<const MeasuredCell*> usable;
  for (const MeasuredCell& cell : cells) {
    if (cell.latency.empty() || cell.error_share > kMaxErrors) continue;
    if (cell.rate <= kMaxUtilization * capacity) usable.push_back(&cell);
  }
  const std::vector<const MeasuredCell*> compared = FromTheQuickest(usable, capacity);
  if (compared.size() < kMinCells) {
    throw std::invalid_argument(
        "the sweep has " + std::to_string(compared.size()) +
        " rates below saturation and almost without errors, and a model needs at least 3: sweep "
        "more rates below the highest throughput");
  }

  ReplicaModel model{.times = ServiceTimes(compared.front()->latency)};
  model.times_rate = compared.front()->rate;
  model.capacity = capacity;
  if (!saturated) {
    model.warnings.push_back(
        "the sweep has no rate at which the server was saturated: its capacity is higher than the "
        "highest throughput, beyond which no replica is planned. Sweep higher rates");
  }
  if (model.times_rate > kMaxLight * capacity) {
    model.warnings.push_back(
        "the sweep's lowest rate is more than half of the capacity, so that its latency is not "
        "that "
        "of an idle server. Sweep lower rates");
  }

  double best = std::numeric_limits<double>::infinity();
  std::vector<Replica> candidates;
  // What the capacity may be: it is known if the server was saturated.
  for (const double times : {1.0, 1.25, 1.6, 2.2, 3.5}) {
    if (saturated && times > 1) break;
    AddCandidates(model.times.mean(), times * model.capacity, &candidates);
  }
  for (const Replica& candidate : candidates) {
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

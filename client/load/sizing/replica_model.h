// One replica as a few numbers, found from the cells of a sweep of one server: how long requests
// take when it is idle (measured), how many it can answer (measured), and how it shares its time
// among them (fitted, so that the simulated latency at each rate is the measured one). What is left
// between the two is the model's error, and every answer that is made with it carries that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/load/measure/histogram.h"
#include "client/load/sizing/queue_simulation.h"

namespace castor::load {

// What a sweep's cell measured.
struct MeasuredCell {
  double rate = 0;        // requests/s that were sent
  double throughput = 0;  // OK answers/s
  double error_share = 0;
  Histogram latency;  // of OK answers, from the intended time
};

struct FittedPoint {
  double rate = 0;
  int64_t measured_p50_ns = 0, measured_p99_ns = 0;
  int64_t modelled_p50_ns = 0, modelled_p99_ns = 0;
};

struct ReplicaModel {
  ServiceTimes times;
  double times_rate = 0;  // of the cell that they are from, requests/s
  Replica replica{};
  double capacity = 0;  // requests/s: the highest throughput that was measured
  // The largest |ln(modelled / measured)| of the p99 of the cells that were compared.
  double error = 0;
  std::vector<FittedPoint> points{};    // the cells that were compared
  std::vector<std::string> warnings{};  // why the model may be worth less than its error says
};

// Requires cells in rising order of rate. The times of lone requests are those of the cell with the
// lowest median among the lightly loaded ones, which need not be the first: a server that is seldom
// asked wakes processors and fills caches for each request. A cell is compared if its rate is not
// below that one's, nor above the capacity, and hardly any of its requests failed. Throws
// std::invalid_argument when fewer than three can be.
ReplicaModel FitReplica(const std::vector<MeasuredCell>& cells, uint64_t seed = 1);

}  // namespace castor::load

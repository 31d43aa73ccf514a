// How many replicas a rate needs, so that a latency goal is met.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/load/sizing/replica_model.h"
#include "client/load/workload/workload.h"

namespace castor::load {

struct SizeRequest {
  double rate = 1;                 // requests/s, in total
  std::vector<LatencyGoal> goals;  // all must be met; at least one
  int callers = 1;                 // that balance by themselves
  double burstiness = 1;           // coefficient of variation of the gaps between requests
  uint64_t seed = 1;
};

// With so many replicas: how far the goal that is nearest to being missed is from that.
struct SizePoint {
  int replicas = 0;
  double utilization = 0;             // share of the capacity that the rate takes
  std::vector<int64_t> latency_ns{};  // by goal
  double worst = 0;                   // latency over limit, of the goal where it is greatest
  double noise = 0;                   // standard error of ln(worst)
};

struct SizeAnswer {
  Balancing balancing = Balancing::kRoundRobin;
  int replicas = 0;      // least number that meets the goals; its p99 is that of the simulation
  int least = 0;         // ... if latencies are lower than simulated by the model's error
  int greatest = 0;      // ... if higher; 0: no number within eight times the capacity does
  SizePoint with_all{};  // `replicas`
  SizePoint with_one_lost{};       // one fewer; replicas 0: none is left
  std::vector<SizePoint> curve{};  // in order of replicas
};

// The answer of each policy. Throws std::invalid_argument when no number of replicas meets a goal,
// since it lies below, or too near, what an idle server reaches.
std::vector<SizeAnswer> SizeFor(const ReplicaModel& model, const SizeRequest& request);

nlohmann::ordered_json ToJson(const ReplicaModel& model);
nlohmann::ordered_json ToJson(const SizeAnswer& answer, const SizeRequest& request);

}  // namespace castor::load

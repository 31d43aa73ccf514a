// Replicas behind a balancer, simulated event by event: requests arrive, wait in their replica's
// queue, and are computed in batches. A million requests or more take a second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/load/measure/histogram.h"
#include "client/load/sizing/service_times.h"

namespace castor::load {

// How one replica shares its time among requests. A request that is alone takes the time x that is
// drawn for it; it occupies the replica for `occupied` of x, and the rest (network, decoding)
// passes beside others. A free lane takes up to max_batch waiting requests, in order of arrival; a
// batch of n occupies it for occupied * mean(x) * (1 + marginal * (n - 1)).
struct Replica {
  int lanes = 1;  // batches that are computed at the same time
  int max_batch = 1;
  double occupied = 1;  // 0..1
  double marginal = 1;  // 0: further requests cost nothing; 1: as much as the first
};

// Requests per second that a replica can answer, when a lone request takes `mean` seconds.
double CapacityOf(const Replica& replica, double mean);

enum class Balancing {
  kRoundRobin,    // each caller goes through the replicas in turn, beginning at a random one
  kLeastRequest,  // the replica with the fewest of the caller's requests; ties at random
  kPowerOfTwo,  // two replicas at random, and of these the one with fewer of the caller's requests
  kRandom,      // any: what round robin becomes with very many callers
};
const char* NameOf(Balancing balancing);  // "round robin", ...

struct QueueSetup {
  ServiceTimes times;
  Replica replica{};
  int replicas = 1;
  Balancing balancing = Balancing::kRoundRobin;
  int callers = 1;  // balance by themselves, knowing of no others; requests are theirs at random
  double rate = 1;  // requests/s, of all callers
  double burstiness = 1;       // coefficient of variation of gaps: 0 is even, 1 Poisson
  int64_t requests = 400'000;  // a tenth more come before and are not counted
  uint64_t seed = 1;
};

struct QueueResult {
  Histogram latency;                 // nanoseconds, from arrival to answer
  std::vector<Histogram> stretches;  // ten equal parts of it, in order of arrival
  double utilization = 0;            // mean share of lanes that compute
  double mean_batch = 0;             // requests

  // The standard error of ln(quantile), as the stretches differ.
  double NoiseAt(double quantile) const;
};

// Deterministic: equal setups give equal results. Requires positive counts and a positive rate.
QueueResult SimulateQueues(const QueueSetup& setup);

}  // namespace castor::load

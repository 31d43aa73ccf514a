// Which replica gets the next request, as each policy sees it. One for each caller.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "client/load/sizing/queue_simulation.h"

namespace castor::load {

using Random = std::mt19937_64;

class Balancer {
 public:
  Balancer(Balancing policy, int replicas, Random& random);

  // The replica of a new request, which counts from now on.
  int Pick(Random& random);
  // One of the caller's requests has been answered.
  void Done(int replica);

 private:
  void Move(int replica, int to);  // to the replicas with that many requests

  const Balancing policy_;
  const uint64_t replicas_;
  uint64_t next_ = 0;          // of round robin
  std::vector<int> requests_;  // by replica
  // For least request: replicas by their number of requests, and where each stands there.
  std::vector<std::vector<int>> with_;
  std::vector<size_t> place_;
  size_t fewest_ = 0;
};

}  // namespace castor::load

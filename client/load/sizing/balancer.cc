#include "client/load/sizing/balancer.h"

#include <numeric>

namespace castor::load {
namespace {

// A number below `bound`; its bias, at most bound / 2^32, does not matter here.
uint64_t Below(uint64_t bound, Random& random) { return ((random() >> 32) * bound) >> 32; }

}  // namespace

Balancer::Balancer(Balancing policy, int replicas, Random& random)
    : policy_(policy), replicas_(static_cast<uint64_t>(replicas)), requests_(replicas_) {
  next_ = Below(replicas_, random);
  if (policy_ != Balancing::kLeastRequest) return;
  with_.resize(1);
  with_[0].resize(replicas_);
  std::iota(with_[0].begin(), with_[0].end(), 0);
  place_.resize(replicas_);
  std::iota(place_.begin(), place_.end(), size_t{0});
}

int Balancer::Pick(Random& random) {
  int replica = 0;
  switch (policy_) {
    case Balancing::kRoundRobin:
      replica = static_cast<int>(next_);
      if (++next_ == replicas_) next_ = 0;
      break;
    case Balancing::kLeastRequest: {
      const std::vector<int>& candidates = with_[fewest_];
      replica = candidates[Below(candidates.size(), random)];
      Move(replica, requests_[replica] + 1);
      break;
    }
    case Balancing::kPowerOfTwo: {
      const auto first = static_cast<int>(Below(replicas_, random));
      // Two different ones, where there are two.
      const uint64_t step = replicas_ > 1 ? 1 + Below(replicas_ - 1, random) : 0;
      const auto second = static_cast<int>((static_cast<uint64_t>(first) + step) % replicas_);
      replica = requests_[second] < requests_[first] ? second : first;
      break;
    }
    case Balancing::kRandom:
      replica = static_cast<int>(Below(replicas_, random));
      break;
  }
  ++requests_[replica];
  return replica;
}

void Balancer::Done(int replica) {
  if (policy_ == Balancing::kLeastRequest) Move(replica, requests_[replica] - 1);
  --requests_[replica];
}

void Balancer::Move(int replica, int to) {
  const auto target = static_cast<size_t>(to);
  if (with_.size() <= target) with_.resize(target + 1);
  std::vector<int>& from = with_[static_cast<size_t>(requests_[replica])];
  const int last = from.back();
  from[place_[replica]] = last;
  place_[last] = place_[replica];
  from.pop_back();
  place_[replica] = with_[target].size();
  with_[target].push_back(replica);
  if (target < fewest_) fewest_ = target;
  while (with_[fewest_].empty()) ++fewest_;
}

}  // namespace castor::load

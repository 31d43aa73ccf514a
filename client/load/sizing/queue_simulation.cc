#include "client/load/sizing/queue_simulation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <random>

#include "client/load/sizing/balancer.h"

namespace castor::load {
namespace {

constexpr size_t kStretches = 10;
constexpr int kNone = -1;

struct Request {
  double arrived = 0, time = 0;  // seconds; the time that it takes alone
  int64_t number = 0;            // negative: not counted
  int caller = 0;
  int next = kNone;  // in its queue or batch
};

// Requests live in one array and are linked by index: no allocation for each.
class Pool {
 public:
  int Take() {
    if (free_ == kNone) {
      requests_.emplace_back();
      return static_cast<int>(requests_.size()) - 1;
    }
    const int index = free_;
    free_ = requests_[index].next;
    return index;
  }
  void Give(int index) {
    requests_[index].next = free_;
    free_ = index;
  }
  Request& operator[](int index) { return requests_[index]; }

 private:
  std::vector<Request> requests_;
  int free_ = kNone;
};

struct State {
  int first = kNone, last = kNone;  // of the waiting requests
  int busy = 0;                     // lanes
};

struct Batch {
  double end = 0;
  int replica = 0;
  int first = kNone;
  bool operator>(const Batch& other) const { return end > other.end; }
};

class Simulation {
 public:
  explicit Simulation(const QueueSetup& setup)
      : setup_(setup), random_(setup.seed), states_(static_cast<size_t>(setup.replicas)) {
    for (int i = 0; i < setup.callers; ++i) {
      balancers_.emplace_back(setup.balancing, setup.replicas, random_);
    }
    result_.stretches.resize(kStretches);
  }

  QueueResult Run() {
    // Below a hundredth, gaps are as good as equal, and a gamma distribution's shape overflows.
    const double variation = std::max(setup_.burstiness, 0.01);
    const double shape = 1 / (variation * variation);
    std::gamma_distribution<double> gamma(shape, 1 / (shape * setup_.rate));
    std::exponential_distribution<double> exponential(setup_.rate);
    double now = 0;
    for (int64_t number = -(setup_.requests / 10); number < setup_.requests; ++number) {
      now += setup_.burstiness == 1 ? exponential(random_) : gamma(random_);
      while (!batches_.empty() && batches_.top().end <= now) EndBatch();
      if (number == 0) {
        begin_ = now;
        counting_ = true;
      }
      Arrive(now, number);
    }
    end_ = now;
    counting_ = false;
    while (!batches_.empty()) EndBatch();
    for (const Histogram& stretch : result_.stretches) result_.latency.Add(stretch);
    result_.utilization = busy_ / ((end_ - begin_) * setup_.replicas * setup_.replica.lanes);
    result_.mean_batch = made_ > 0 ? in_batches_ / made_ : 0;
    return std::move(result_);
  }

 private:
  void Arrive(double now, int64_t number) {
    const int caller = setup_.callers == 1
                           ? 0
                           : static_cast<int>(random_() % static_cast<uint64_t>(setup_.callers));
    const int replica = balancers_[caller].Pick(random_);
    const int index = pool_.Take();
    pool_[index] = {.arrived = now,
                    .time = setup_.times.Draw(random_()),
                    .number = number,
                    .caller = caller,
                    .next = kNone};
    State& state = states_[replica];
    (state.last == kNone ? state.first : pool_[state.last].next) = index;
    state.last = index;
    if (state.busy < setup_.replica.lanes) StartBatch(now, replica);
  }

  // Requires a free lane and a waiting request.
  void StartBatch(double now, int replica) {
    State& state = states_[replica];
    const int first = state.first;
    int last = first;
    int count = 1;
    double sum = pool_[first].time;
    for (; count < setup_.replica.max_batch && pool_[last].next != kNone; ++count) {
      last = pool_[last].next;
      sum += pool_[last].time;
    }
    state.first = pool_[last].next;
    if (state.first == kNone) state.last = kNone;
    pool_[last].next = kNone;
    ++state.busy;
    const double takes =
        setup_.replica.occupied * sum / count * (1 + setup_.replica.marginal * (count - 1));
    batches_.push({now + takes, replica, first});
    if (counting_) busy_ += takes;
    made_ += 1;
    in_batches_ += count;
  }

  void EndBatch() {
    const Batch batch = batches_.top();
    batches_.pop();
    for (int index = batch.first; index != kNone;) {
      const Request& request = pool_[index];
      balancers_[request.caller].Done(batch.replica);
      if (request.number >= 0) {
        const double beside = (1 - setup_.replica.occupied) * request.time;
        const double latency = batch.end - request.arrived + beside;
        result_.stretches[request.number * kStretches / setup_.requests].Record(
            std::llround(latency * 1e9));
      }
      const int next = request.next;
      pool_.Give(index);
      index = next;
    }
    State& state = states_[batch.replica];
    --state.busy;
    if (state.first != kNone) StartBatch(batch.end, batch.replica);
  }

  const QueueSetup& setup_;
  Random random_;
  std::vector<Balancer> balancers_;  // by caller
  std::vector<State> states_;        // by replica
  Pool pool_;
  std::priority_queue<Batch, std::vector<Batch>, std::greater<>> batches_;  // being computed
  double begin_ = 0, end_ = 0, busy_ = 0, made_ = 0, in_batches_ = 0;
  bool counting_ = false;  // busy_, between begin_ and end_
  QueueResult result_;
};

}  // namespace

double CapacityOf(const Replica& replica, double mean) {
  return replica.lanes * replica.max_batch /
         (replica.occupied * mean * (1 + replica.marginal * (replica.max_batch - 1)));
}

const char* NameOf(Balancing balancing) {
  switch (balancing) {
    case Balancing::kRoundRobin:
      return "round robin";
    case Balancing::kLeastRequest:
      return "least request";
    case Balancing::kPowerOfTwo:
      return "power of two choices";
    case Balancing::kRandom:
      return "random";
  }
  return "";
}

double QueueResult::NoiseAt(double quantile) const {
  double sum = 0, squares = 0;
  for (const Histogram& stretch : stretches) {
    const double value =
        std::log(static_cast<double>(std::max<int64_t>(1, stretch.ValueAt(quantile))));
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(stretches.size());
  const double variance = std::max(0.0, (squares - sum * sum / count) / (count - 1));
  return std::sqrt(variance / count);
}

QueueResult SimulateQueues(const QueueSetup& setup) { return Simulation(setup).Run(); }

}  // namespace castor::load

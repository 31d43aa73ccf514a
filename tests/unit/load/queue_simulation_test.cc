#include "client/load/sizing/queue_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <random>
#include <vector>

#include "client/load/sizing/balancer.h"
#include "tests/unit/load/md1.h"

namespace castor::load {
namespace {

constexpr double kMean = 0.002;  // seconds
const ServiceTimes kExponential([](double q) { return -kMean * std::log1p(-q); });
const ServiceTimes kConstant([](double) { return kMean; });

QueueSetup QueueAt(const ServiceTimes& times, double utilization, int replicas = 1) {
  return {.times = times,
          .replicas = replicas,
          .rate = utilization * replicas / kMean,
          .requests = 2'000'000,
          .seed = std::random_device()()};
}

double Mean(const QueueResult& result) { return result.latency.mean() / 1e9 / kMean; }
double At(const QueueResult& result, double quantile) {
  return static_cast<double>(result.latency.ValueAt(quantile)) / 1e9 / kMean;
}

TEST(QueueSimulation, OneServerIsTheMm1Queue) {
  for (const double rho : {0.3, 0.7, 0.85}) {
    const QueueSetup setup = QueueAt(kExponential, rho);
    const QueueResult result = SimulateQueues(setup);
    // Time in the system is exponential with mean 1 / (1 - rho).
    EXPECT_NEAR(Mean(result) * (1 - rho), 1, 0.05) << "rho " << rho << " seed " << setup.seed;
    EXPECT_NEAR(At(result, 0.99) * (1 - rho) / -std::log(0.01), 1, 0.08)
        << "rho " << rho << " seed " << setup.seed;
    EXPECT_NEAR(result.utilization, rho, 0.02);
    EXPECT_EQ(result.latency.count(), setup.requests);
    EXPECT_EQ(result.mean_batch, 1);
  }
}

TEST(QueueSimulation, OneServerOfConstantTimesIsTheMd1Queue) {
  const QueueSetup setup = QueueAt(kConstant, 0.8);
  const QueueResult result = SimulateQueues(setup);
  EXPECT_NEAR(Mean(result), 1 + 0.8 / (2 * 0.2), 0.06) << setup.seed;
  for (const double quantile : {0.5, 0.9, 0.99}) {
    const double wait = At(result, quantile) - 1;
    EXPECT_NEAR(testing::Md1WaitAtMost(wait, 0.8), quantile, 0.15 * (1 - quantile) + 0.002)
        << setup.seed;
  }
}

// Erlang's C: the share of requests that wait in M/M/c.
double ErlangC(int servers, double rho) {
  const double load = servers * rho;
  double term = 1;
  double sum = 1;
  for (int k = 1; k < servers; ++k) sum += term *= load / k;
  term *= load / servers;
  return term / (1 - rho) / (sum + term / (1 - rho));
}

TEST(QueueSimulation, LanesOfOneQueueAreTheMmcQueue) {
  for (const int lanes : {2, 5, 20}) {
    QueueSetup setup = QueueAt(kExponential, 0.8);
    setup.replica.lanes = lanes;
    setup.rate *= lanes;
    const QueueResult result = SimulateQueues(setup);
    const double wait = ErlangC(lanes, 0.8) / (lanes * (1 - 0.8));
    EXPECT_NEAR(Mean(result), 1 + wait, 0.03 * (1 + wait)) << lanes << " seed " << setup.seed;
    EXPECT_NEAR(result.utilization, 0.8, 0.02);
  }
}

TEST(QueueSimulation, RandomBalancingIsAsManySeparateQueues) {
  QueueSetup setup = QueueAt(kExponential, 0.7, 50);
  setup.balancing = Balancing::kRandom;
  EXPECT_NEAR(Mean(SimulateQueues(setup)) * 0.3, 1, 0.05) << setup.seed;
}

TEST(QueueSimulation, TwoChoicesAmongManyReplicasApproachTheMeanField) {
  // Vvedenskaya, Dobrushin and Karpelevich: sum over i >= 1 of rho^(2^i - 2).
  QueueSetup setup = QueueAt(kExponential, 0.9, 500);
  setup.balancing = Balancing::kPowerOfTwo;
  double expected = 0;
  for (int i = 1; i < 12; ++i) expected += std::pow(0.9, std::pow(2.0, i) - 2);
  EXPECT_NEAR(Mean(SimulateQueues(setup)), expected, 0.03 * expected) << setup.seed;
}

TEST(QueueSimulation, RoundRobinOfConstantTimesIsOneQueueForAll) {
  // Known of M/D/c: cyclic assignment gives each request the waiting time of a shared queue.
  QueueSetup separate = QueueAt(kConstant, 0.9, 8);
  QueueSetup shared = QueueAt(kConstant, 0.9);
  shared.replica.lanes = 8;
  shared.rate = separate.rate;
  const QueueResult a = SimulateQueues(separate);
  const QueueResult b = SimulateQueues(shared);
  EXPECT_NEAR(Mean(a), Mean(b), 0.03 * Mean(b)) << separate.seed << " " << shared.seed;
  EXPECT_NEAR(At(a, 0.99), At(b, 0.99), 0.08 * At(b, 0.99));
}

TEST(QueueSimulation, KnowingMoreOfReplicasIsBetterWhenTimesVary) {
  double p99[4];
  for (int i = 0; i < 4; ++i) {
    QueueSetup setup = QueueAt(kExponential, 0.9, 20);
    constexpr Balancing kOrder[4] = {Balancing::kLeastRequest, Balancing::kPowerOfTwo,
                                     Balancing::kRoundRobin, Balancing::kRandom};
    setup.balancing = kOrder[i];
    p99[i] = At(SimulateQueues(setup), 0.99);
  }
  EXPECT_LT(p99[0], p99[1]);
  EXPECT_LT(p99[1], p99[2]);
  EXPECT_LT(p99[2], p99[3]);
}

TEST(QueueSimulation, ManyCallersThatKnowNothingOfEachOtherBalanceAtRandom) {
  for (const Balancing balancing : {Balancing::kRoundRobin, Balancing::kLeastRequest}) {
    QueueSetup setup = QueueAt(kExponential, 0.7, 10);
    setup.balancing = balancing;
    setup.callers = 2000;
    const double many = Mean(SimulateQueues(setup));
    EXPECT_NEAR(many * 0.3, 1, 0.1) << NameOf(balancing) << " seed " << setup.seed;
    setup.callers = 1;
    EXPECT_LT(Mean(SimulateQueues(setup)), 0.8 * many) << NameOf(balancing);
  }
}

TEST(QueueSimulation, BurstsWaitLongerAndEvenArrivalsShorter) {
  double mean[3];
  for (int i = 0; i < 3; ++i) {
    constexpr double kBurstiness[3] = {0, 1, 2};
    QueueSetup setup = QueueAt(kExponential, 0.7);
    setup.burstiness = kBurstiness[i];
    const QueueResult result = SimulateQueues(setup);
    EXPECT_NEAR(result.utilization, 0.7, 0.02) << setup.seed;  // the rate is the same
    mean[i] = Mean(result);
  }
  EXPECT_LT(mean[0], 0.9 * mean[1]);
  EXPECT_GT(mean[2], 1.3 * mean[1]);
}

TEST(QueueSimulation, BatchesCarryMoreThanRequestsOneByOne) {
  // A further request costs a fifth: with 8 in a batch, 8 / (1 + 7 / 5) = 3.3 times the capacity.
  Replica replica{.max_batch = 8, .marginal = 0.2};
  EXPECT_NEAR(CapacityOf(replica, kMean), 8 / 2.4 / kMean, 1e-6);
  QueueSetup setup = QueueAt(kConstant, 0.95 * 8 / 2.4);
  setup.replica = replica;
  const QueueResult result = SimulateQueues(setup);
  EXPECT_LT(At(result, 0.99), 40);
  EXPECT_GT(result.mean_batch, 4);
  EXPECT_LE(result.mean_batch, 8);
  // A little beyond the capacity, the queue grows as long as the run does.
  setup.rate *= 1.1;
  EXPECT_GT(At(SimulateQueues(setup), 0.99), 1000);
}

TEST(QueueSimulation, AloneARequestTakesWhatItTookAlone) {
  QueueSetup setup = QueueAt(kExponential, 0.001);
  setup.requests = 200'000;
  setup.replica = {.lanes = 1, .max_batch = 16, .occupied = 0.4, .marginal = 0.1};
  const QueueResult result = SimulateQueues(setup);
  EXPECT_NEAR(Mean(result), 1, 0.02);
  EXPECT_NEAR(At(result, 0.99), -std::log(0.01), 0.1);
}

TEST(QueueSimulation, EqualSetupsGiveEqualResults) {
  QueueSetup setup = QueueAt(kExponential, 0.8, 7);
  setup.requests = 50'000;
  setup.balancing = Balancing::kLeastRequest;
  const QueueResult first = SimulateQueues(setup);
  const QueueResult second = SimulateQueues(setup);
  EXPECT_EQ(first.latency.ValueAt(0.999), second.latency.ValueAt(0.999));
  EXPECT_EQ(first.latency.mean(), second.latency.mean());
  ++setup.seed;
  EXPECT_NE(first.latency.mean(), SimulateQueues(setup).latency.mean());
}

TEST(QueueSimulation, NoiseIsTheSpreadBetweenRuns) {
  QueueSetup setup = QueueAt(kExponential, 0.8);
  setup.requests = 200'000;
  double said = 0;
  double sum = 0;
  double squares = 0;
  constexpr int kRuns = 40;
  for (int i = 0; i < kRuns; ++i, ++setup.seed) {
    const QueueResult result = SimulateQueues(setup);
    said += result.NoiseAt(0.99) / kRuns;
    const double value = std::log(At(result, 0.99));
    sum += value;
    squares += value * value;
  }
  const double spread = std::sqrt((squares - sum * sum / kRuns) / (kRuns - 1));
  EXPECT_GT(said, 0.5 * spread);
  EXPECT_LT(said, 2 * spread);
}

// The slow twin: it looks at all replicas.
TEST(Balancer, LeastRequestIsTheFewestOfAll) {
  const uint64_t seed = std::random_device()();
  Random random(seed);
  constexpr int kReplicas = 9;
  Balancer balancer(Balancing::kLeastRequest, kReplicas, random);
  std::vector<int> open(kReplicas);
  std::vector<int> picked(kReplicas);
  std::deque<int> where;
  for (int step = 0; step < 100'000; ++step) {
    if (where.empty() || random() % 2 == 0) {
      const int least = *std::min_element(open.begin(), open.end());
      const int replica = balancer.Pick(random);
      ASSERT_EQ(open[replica], least) << "seed " << seed << " step " << step;
      ++open[replica];
      ++picked[replica];
      where.push_back(replica);
    } else {
      const size_t at = random() % where.size();
      balancer.Done(where[at]);
      --open[where[at]];
      where.erase(where.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  for (const int count : picked) EXPECT_GT(count, 100'000 / 2 / kReplicas / 2);  // ties at random
}

TEST(ServiceTimes, OfAHistogramAreDistributedAsItIs) {
  Histogram measured;
  std::mt19937_64 random(std::random_device{}());
  std::lognormal_distribution<double> draw(-6, 1);
  for (int i = 0; i < 300'000; ++i) measured.Record(std::llround(draw(random) * 1e9));
  const ServiceTimes times(measured);
  EXPECT_NEAR(times.mean() * 1e9, measured.mean(), 0.005 * measured.mean());
  for (const double quantile : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    const auto expected = static_cast<double>(measured.ValueAt(quantile));
    EXPECT_NEAR(times.Quantile(quantile) * 1e9, expected, 0.02 * expected) << quantile;
  }
}

}  // namespace
}  // namespace castor::load

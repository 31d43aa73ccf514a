#include "client/load/sizing/size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "client/load/sizing/replica_model.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;

const ServiceTimes kLognormal([](double q) {
  // A logistic in the logarithm, which is near enough: median 4 ms.
  return 0.004 * std::exp(0.25 * std::log(q / (1 - q)));
});

// What a sweep of a server that is such a replica measures.
std::vector<MeasuredCell> SweepOf(const ServiceTimes& times, const Replica& replica,
                                  uint64_t seed) {
  std::vector<MeasuredCell> cells;
  const double capacity = CapacityOf(replica, times.mean());
  for (const double share : {0.02, 0.2, 0.4, 0.6, 0.75, 0.85, 1.3}) {
    const double rate = share * capacity;
    QueueResult result = SimulateQueues(
        {.times = times, .replica = replica, .rate = rate, .requests = 200'000, .seed = ++seed});
    cells.push_back({.rate = rate,
                     .throughput = std::min(rate, capacity),
                     .error_share = 0,
                     .latency = std::move(result.latency)});
  }
  return cells;
}

uint64_t FreshSeed() {
  const uint64_t seed = std::random_device()();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// Servers of several kinds: one by one, parallel, batching, with much of the time outside.
const Replica kServers[] = {{},
                            {.lanes = 4},
                            {.max_batch = 16, .occupied = 0.8, .marginal = 0.3},
                            {.lanes = 2, .max_batch = 8, .occupied = 0.5, .marginal = 0.1},
                            {.max_batch = 24, .occupied = 0.7, .marginal = 0.5}};

TEST(ReplicaModel, ReproducesTheCurveOfTheServerThatWasSwept) {
  const uint64_t seed = FreshSeed();
  for (const Replica& server : kServers) {
    const ReplicaModel model = FitReplica(SweepOf(kLognormal, server, seed), seed);
    std::printf("lanes %d batch %d occupied %.2f marginal %.2f -> %d %d %.2f %.2f error %.1f %%\n",
                server.lanes, server.max_batch, server.occupied, server.marginal,
                model.replica.lanes, model.replica.max_batch, model.replica.occupied,
                model.replica.marginal, 100 * std::expm1(model.error));
    EXPECT_NEAR(model.capacity, CapacityOf(server, kLognormal.mean()), 1e-6 * model.capacity);
    EXPECT_EQ(model.points.size(), 6u);  // all but the saturated one
    EXPECT_LT(model.error, 0.3);         // of p99s of 200,000 requests each
    EXPECT_TRUE(model.warnings.empty());
    for (const FittedPoint& point : model.points) {
      const double off = std::abs(std::log(static_cast<double>(point.modelled_p99_ns) /
                                           static_cast<double>(point.measured_p99_ns)));
      EXPECT_LE(off, model.error + 1e-12);  // the error is that of the worst
    }
  }
}

TEST(ReplicaModel, TakesNoColdServersTimesForThoseOfAWarmOne) {
  // Seldom asked, the server is slower: half as fast at the lowest rate, two thirds at the next.
  const uint64_t seed = FreshSeed();
  std::vector<MeasuredCell> cells = SweepOf(kLognormal, {}, seed);
  for (size_t i = 0; i < 2; ++i) {
    Histogram cold;
    cells[i].latency.ForEach([&](int64_t lowest, int64_t, int64_t count) {
      cold.Record(lowest + lowest / (i == 0 ? 1 : 2), count);
    });
    cells[i].latency = cold;
  }
  const ReplicaModel model = FitReplica(cells, seed);
  EXPECT_EQ(model.times_rate, cells[2].rate);
  EXPECT_EQ(model.points.size(), 4u);
  EXPECT_LT(model.error, 0.4);  // some waiting is in its times
}

TEST(ReplicaModel, SaysHowFarItIsFromAServerOfAnotherKind) {
  // Each tenth request holds the server up: no model of this family has that.
  const uint64_t seed = FreshSeed();
  std::vector<MeasuredCell> cells = SweepOf(kLognormal, {}, seed);
  for (size_t i = 3; i < cells.size(); ++i) {
    Histogram stalled;
    int64_t k = 0;
    cells[i].latency.ForEach([&](int64_t lowest, int64_t, int64_t count) {
      stalled.Record(lowest + (++k % 10 == 0 ? 400'000'000 : 0), count);
    });
    cells[i].latency = stalled;
  }
  EXPECT_GT(FitReplica(cells, seed).error, 0.5);
}

TEST(ReplicaModel, WarnsOfSweepsThatSayTooLittle) {
  const std::vector<MeasuredCell> all = SweepOf(kLognormal, {}, 1);
  const ReplicaModel unsaturated = FitReplica({all.begin(), all.end() - 1});
  ASSERT_EQ(unsaturated.warnings.size(), 1u);
  EXPECT_LT(unsaturated.error, 0.25);  // it is taken for no saturated one
  EXPECT_NE(unsaturated.warnings[0].find("saturated"), std::string::npos);
  const ReplicaModel busy = FitReplica({all.begin() + 3, all.end()});
  ASSERT_EQ(busy.warnings.size(), 1u);
  EXPECT_NE(busy.warnings[0].find("idle"), std::string::npos);
  EXPECT_THROW(FitReplica({}), std::invalid_argument);
  EXPECT_THROW(FitReplica({all.begin(), all.begin() + 2}), std::invalid_argument);
  std::vector<MeasuredCell> failing = all;
  for (MeasuredCell& cell : failing) cell.error_share = 0.02;
  EXPECT_THROW(FitReplica(failing), std::invalid_argument);
}

ReplicaModel Exactly(const ServiceTimes& times, const Replica& replica, double error) {
  return {.times = times,
          .replica = replica,
          .capacity = CapacityOf(replica, times.mean()),
          .error = error};
}

TEST(Size, OfSeparateMm1QueuesIsTheClosedForm) {
  // Very many callers balance at random: each replica is M/M/1, whose p99 is ln(100) / (mu -
  // lambda).
  const double mean = 0.01;
  const ServiceTimes exponential([&](double q) { return -mean * std::log1p(-q); });
  const ReplicaModel model = Exactly(exponential, {}, 0);
  const SizeRequest request{.rate = 1500,
                            .goals = {{.quantile = 0.99, .limit = milliseconds(150)}},
                            .callers = 500,
                            .seed = FreshSeed()};
  const double lambda = 1 / mean - std::log(100) / 0.150;
  const int expected = static_cast<int>(std::ceil(request.rate / lambda));
  const std::vector<SizeAnswer> answers = SizeFor(model, request);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_NEAR(answers[0].replicas, expected, 1) << "of round robin";
}

TEST(Size, IsTheLeastNumberThatMeetsTheGoal) {
  const ReplicaModel model = Exactly(kLognormal, {.max_batch = 4, .marginal = 0.5}, 0.1);
  const SizeRequest request{.rate = 20 * model.capacity,
                            .goals = {{.quantile = 0.99, .limit = milliseconds(40)},
                                      {.quantile = 0.5, .limit = milliseconds(30)}},
                            .seed = FreshSeed()};
  for (const SizeAnswer& answer : SizeFor(model, request)) {
    EXPECT_EQ(answer.with_all.replicas, answer.replicas);
    EXPECT_LE(answer.with_all.worst, 1) << NameOf(answer.balancing);
    EXPECT_EQ(answer.with_one_lost.replicas, answer.replicas - 1);
    EXPECT_GE(answer.replicas, 21);  // the capacity alone asks for that
    if (answer.replicas > 21) {
      EXPECT_GT(answer.with_one_lost.worst, 1) << NameOf(answer.balancing);
    }
    EXPECT_LE(answer.least, answer.replicas);
    EXPECT_GE(answer.greatest, answer.replicas);
    ASSERT_EQ(answer.with_all.latency_ns.size(), 2u);
    for (size_t i = 1; i < answer.curve.size(); ++i) {
      EXPECT_LT(answer.curve[i - 1].replicas, answer.curve[i].replicas);
    }
    EXPECT_EQ(ToJson(answer, request)["replicas"], answer.replicas);
  }
}

TEST(Size, WidensWithTheModelsError) {
  const SizeRequest request{.rate = 10'000,
                            .goals = {{.quantile = 0.99, .limit = milliseconds(24)}},
                            .seed = FreshSeed()};
  const SizeAnswer sure = SizeFor(Exactly(kLognormal, {}, 0.02), request)[0];
  const SizeAnswer unsure = SizeFor(Exactly(kLognormal, {}, 0.5), request)[0];
  EXPECT_EQ(sure.replicas, unsure.replicas);
  EXPECT_LE(unsure.least, sure.least);
  EXPECT_GT(unsure.greatest, sure.greatest);
}

TEST(Size, SaysThatNoNumberOfReplicasMakesARequestFaster) {
  const ReplicaModel model = Exactly(kLognormal, {}, 0);
  SizeRequest request{.rate = 100, .goals = {{.quantile = 0.99, .limit = milliseconds(5)}}};
  EXPECT_THROW(SizeFor(model, request), std::invalid_argument);
  request.goals.clear();
  EXPECT_THROW(SizeFor(model, request), std::invalid_argument);
}

}  // namespace
}  // namespace castor::load

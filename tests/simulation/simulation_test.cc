// The scheduler's promises, on random traffic: each request ends exactly once, no budget is
// exceeded, nor the device's memory or a tenant's quota, the device does not idle while requests
// wait, the order is kept, admitted requests are answered in time, short requests preempt long
// ones, and tenants share fairly by their current weights.

#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/support/tenant_weights.h"

namespace castor::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SimulationTest : public testing::Test, protected Seeded {
 protected:
  // A few sources of any kind, from idle to several times what the device can serve.
  Workload RandomWorkload(int tenants = 3) {
    Workload workload{.name = "random", .sources = {}, .length = seconds(UpTo(10))};
    const int sources = UpTo(4);
    for (int i = 0; i < sources; ++i) {
      Source source;
      const bool closed = Uniform(0, 3) == 0;
      if (closed) {
        source.in_flight = UpTo(4);
      } else {
        source.rate = UpTo(100);
        source.burst = Uniform(0, 1) == 0 ? 1 : UpTo(50);
      }
      std::optional<Duration> deadline;
      if (Uniform(0, 1) == 0) deadline = milliseconds(UpTo(3000));
      const auto priority = static_cast<Priority>(Uniform(0, 2));
      const std::string tenant(1, static_cast<char>('a' + Uniform(0, tenants - 1)));
      const int64_t high = closed || Uniform(0, 4) == 0 ? 8000 : 500;
      const int64_t bytes_per_token = Uniform(0, 3) == 0 ? 0 : UpTo(1000);
      const int64_t shared_bytes = Uniform(0, 1'000'000);
      source.draw = [draw = Attention(1, high, UpTo(5), deadline), priority, tenant,
                     bytes_per_token, shared_bytes](std::mt19937& random) {
        Request request = draw(random);
        request.memory = {.own = request.tokens * bytes_per_token, .shared = shared_bytes};
        request.priority = priority;
        request.tenant = tenant;
        return request;
      };
      workload.sources.push_back(std::move(source));
    }
    return workload;
  }

  struct Quota {
    int64_t most = std::numeric_limits<int64_t>::max();
    int64_t before = 0;  // that were open
  };
  Tenants::Terms RandomTerms(std::map<std::string, Quota>* quotas) {
    Tenants::Terms terms;
    for (auto& [tenant, quota] : *quotas) {
      quota.most = Quota().most;
      if (Uniform(0, 1) == 0) continue;
      terms[tenant].weight = Uniform(0, 1) == 0 ? 0.001 * UpTo(1000) : UpTo(1000);
      if (Uniform(0, 1) == 0) continue;
      quota.most = terms[tenant].max_queued_requests = UpTo(50);
    }
    return terms;
  }

  Settings RandomSettings() {
    Settings settings;
    settings.budgets.most.requests = UpTo(200);
    settings.budgets.most.tokens = Uniform(8000, 100'000);
    settings.budgets.queued_time = milliseconds(UpTo(5000));
    if (Uniform(0, 2) != 0) settings.device_bytes = Uniform(500'000, 10'000'000);
    settings.limits.max_tokens = UpTo(10'000);
    settings.limits.max_requests = UpTo(64);
    if (Uniform(0, 2) == 0) settings.limits.delay = milliseconds(UpTo(5));
    if (Uniform(0, 2) == 0) settings.launch = milliseconds(UpTo(8));
    settings.predicts = Uniform(0, 3) != 0;
    settings.preempts = Uniform(0, 3) != 0;
    if (Uniform(0, 1) == 0) settings.error = 0.01 * UpTo(100);
    if (Uniform(0, 1) == 0) settings.tenants = Weights({{"a", 0.1 * UpTo(50)}});
    return settings;
  }
};

TEST_F(SimulationTest, EachRequestEndsOnceWithinTheBudgets) {
  for (int round = 0; round < Scaled(200); ++round) {
    const Workload workload = RandomWorkload();
    const Settings settings = RandomSettings();
    Simulation simulation(workload, settings, random_());
    std::map<std::string, Quota> quotas = {{"a", {}}, {"b", {}}, {"c", {}}};
    simulation.on_event = [&](const Simulation& at) {
      for (auto& [tenant, quota] : quotas) {
        const int64_t open = at.open_requests(tenant);
        EXPECT_LE(open, std::max(quota.most, quota.before)) << tenant;
        quota.before = open;
      }
      if (Uniform(0, 99) == 0) simulation.SetTenants(RandomTerms(&quotas));
      const LoadStats load = at.load();
      EXPECT_LE(load.inflight_requests, settings.budgets.most.requests);
      EXPECT_LE(load.inflight_tokens, settings.budgets.most.tokens);
      EXPECT_LE(at.held_bytes(), settings.device_bytes);
      if (settings.limits.delay == std::chrono::microseconds(0)) {
        EXPECT_FALSE(at.device_idle() && at.waiting()) << "it idles while requests wait";
      }
    };
    const std::vector<Outcome> outcomes = simulation.Run();
    std::set<Ticket> tickets;
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(tickets.insert(outcome.ticket).second) << "ended twice";
      const auto& deadline = outcome.request.deadline;
      switch (outcome.fate) {
        case Fate::kAnswered:
          EXPECT_GE(outcome.ended, outcome.started + outcome.takes);
          EXPECT_TRUE(!deadline || outcome.started < outcome.arrived + *deadline)
              << "it was started after its deadline";
          break;
        case Fate::kExpired:
          EXPECT_TRUE(deadline && outcome.latency() <= *deadline);
          break;
        case Fate::kRefused:
          EXPECT_EQ(outcome.latency(), Duration(0));
          break;
      }
    }
    EXPECT_EQ(tickets.size(), static_cast<size_t>(simulation.arrivals())) << "one never ended";
    EXPECT_EQ(simulation.load().inflight_requests, 0);
    EXPECT_EQ(simulation.load().inflight_tokens, 0);
    EXPECT_EQ(simulation.load().queued_seconds, 0);
    EXPECT_EQ(simulation.held_bytes(), 0);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(SimulationTest, BatchesBeginWithTheFirstByRankAndKeepTheirLimits) {
  for (int round = 0; round < Scaled(200); ++round) {
    const Workload workload = RandomWorkload(/*tenants=*/1);
    Settings settings = RandomSettings();
    settings.limits.delay = std::chrono::microseconds(0);
    Simulation simulation(workload, settings, random_());
    simulation.on_batch = [&](const Formed& formed) {
      int64_t tokens = 0;
      EXPECT_LE(MemoryOf(formed.jobs).bytes(), settings.device_bytes - formed.held_bytes);
      for (const auto& job : formed.jobs) {
        EXPECT_EQ(job->batch_key, formed.jobs.front()->batch_key);
        tokens += job->cost.tokens;
      }
      EXPECT_TRUE(formed.jobs.size() == 1 || tokens <= settings.limits.max_tokens);
      EXPECT_LE(static_cast<int64_t>(formed.jobs.size()), settings.limits.max_requests);
      if (formed.preempts) return;
      for (const Job* left : formed.left) {
        EXPECT_LT(formed.jobs.front()->rank, left->rank) << "it was overtaken";
      }
    };
    simulation.Run();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

// The outcome of one source's requests.
struct Summary {
  int64_t all = 0;
  int64_t admitted = 0;
  int64_t late = 0;    // of those admitted
  Duration p99{};      // of those answered
  double seconds = 0;  // of the device

  Summary(const std::vector<Outcome>& outcomes, size_t source) {
    std::vector<Duration> latencies;
    for (const Outcome& outcome : outcomes) {
      if (outcome.request.source != source) continue;
      ++all;
      if (outcome.fate == Fate::kRefused) continue;
      ++admitted;
      late += !outcome.useful();
      if (outcome.fate != Fate::kAnswered) continue;
      latencies.push_back(outcome.latency());
      seconds += std::chrono::duration<double>(outcome.takes).count();
    }
    std::sort(latencies.begin(), latencies.end());
    if (!latencies.empty()) p99 = latencies[latencies.size() * 99 / 100];
  }
};

Source Shorts(double rate, std::optional<Duration> deadline = std::nullopt,
              std::string tenant = "") {
  Source source{.name = "short", .rate = rate};
  source.draw = [draw = Attention(64, 512, 3, deadline), tenant](std::mt19937& random) {
    Request request = draw(random);
    request.tenant = tenant;
    return request;
  };
  return source;
}

// Shorts take nearly a millisecond on average, and their launches a tenth of that.
TEST_F(SimulationTest, WhatIsAdmittedIsAnsweredInTime) {
  for (const double rate : {500, 1000, 2000, 10'000}) {
    for (const double error : {0.0, 0.2}) {
      SCOPED_TRACE(std::to_string(rate) + " per second");
      const auto length = seconds(Scaled(20));
      const Workload workload{.name = "", .sources = {Shorts(rate, seconds(1))}, .length = length};
      const Summary shorts(Simulation(workload, {.error = error}, random_()).Run(), 0);
      EXPECT_LE(shorts.late, shorts.admitted / 1000);
      if (rate < 1000) {
        EXPECT_EQ(shorts.admitted, shorts.all);
      }
      if (rate > 1000) {
        EXPECT_GE(shorts.seconds, 0.8 * static_cast<double>(length.count())) << "it is kept busy";
      }
    }
  }
}

TEST_F(SimulationTest, ShortRequestsPreemptLongOnesWhichKeepTheirShare) {
  Source long_ones{.name = "long", .in_flight = 2, .draw = Attention(65536, 65536, 1)};
  for (const double rate : {300, 900}) {
    const Duration length = seconds(Scaled(300));
    const Workload alone{.name = "", .sources = {Shorts(rate)}, .length = length};
    const Workload both{.name = "", .sources = {Shorts(rate), long_ones}, .length = length};
    const uint32_t seed = random_();
    const Summary without(Simulation(alone, {}, seed).Run(), 0);
    const auto outcomes = Simulation(both, {}, seed).Run();
    const Summary with(outcomes, 0), beside(outcomes, 1);
    const double share =
        beside.seconds /
        std::chrono::duration<double>(outcomes.back().ended - outcomes.front().arrived).count();
    if (rate == 300) {
      EXPECT_LE(with.p99, without.p99 + milliseconds(10));
      EXPECT_EQ(with.admitted, with.all);
      EXPECT_GE(share, 0.6);
    }
    EXPECT_GE(share, 0.45) << "preemptors take no more than half";
  }
}

// A long request that takes most of the memory keeps out those that need as much, and no others.
// When it ends, those that have waited are served first.
TEST_F(SimulationTest, RequestsThatFitBesideALongOnePreemptItAndOthersWait) {
  const auto with_memory = [](Source source, int64_t bytes) {
    source.draw = [draw = source.draw, bytes](std::mt19937& random) {
      Request request = draw(random);
      request.memory.own = bytes;
      return request;
    };
    return source;
  };
  Source long_ones{.name = "long", .in_flight = 1, .draw = Attention(65536, 65536, 1)};
  const Workload workload{.name = "",
                          .sources = {with_memory(long_ones, 90), with_memory(Shorts(20), 1),
                                      with_memory(Shorts(20), 50)},
                          .length = seconds(Scaled(600))};
  const auto outcomes = Simulation(workload, {.device_bytes = 100}, random_()).Run();
  const Summary small(outcomes, 1), large(outcomes, 2);
  EXPECT_LE(small.p99, seconds(1));
  EXPECT_EQ(small.admitted, small.all);
  EXPECT_GE(large.p99, seconds(10)) << "they wait for a long one to end";
  EXPECT_LE(large.p99, seconds(60)) << "and run when it has";
}

TEST_F(SimulationTest, ATenantThatAsksForLessThanItsShareIsNotHeldUpByAGreedyOne) {
  const Duration length = seconds(Scaled(60));
  const Source modest = Shorts(200, seconds(1), "modest");
  const Source greedy = Shorts(5000, seconds(1), "greedy");
  const Workload both{.name = "", .sources = {modest, greedy}, .length = length};
  const auto outcomes = Simulation(both, {}, random_()).Run();
  const Summary beside(outcomes, 0), taken(outcomes, 1);
  EXPECT_LE(beside.p99, milliseconds(12));
  EXPECT_GE(beside.admitted, beside.all * 999 / 1000);
  EXPECT_LE(beside.late, beside.admitted / 1000);
  EXPECT_LE(taken.late, taken.admitted / 500);
}

TEST_F(SimulationTest, SharesFollowNewWeights) {
  const Duration half = seconds(Scaled(30));
  const Workload workload{.name = "",
                          .sources = {Shorts(3000, seconds(1), "a"), Shorts(3000, seconds(1), "b")},
                          .length = 2 * half};
  Simulation simulation(workload, {.tenants = Weights({{"a", 3}})}, random_());
  std::optional<TimePoint> begin;
  bool changed = false;
  simulation.on_batch = [&](const Formed& formed) {
    if (!begin) begin = formed.at;
    if (changed || formed.at < *begin + half) return;
    changed = true;
    simulation.SetTenants(Weights({{"b", 3}}));
  };
  const auto outcomes = simulation.Run();
  const auto ratio = [&](Duration from, Duration to) {
    std::vector<Outcome> among;
    for (const Outcome& outcome : outcomes) {
      if (outcome.fate != Fate::kAnswered) continue;
      if (outcome.started < *begin + from || outcome.started >= *begin + to) continue;
      among.push_back(outcome);
    }
    return Summary(among, 0).seconds / Summary(among, 1).seconds;
  };
  EXPECT_GE(ratio(Duration(0), half), 2.4);
  EXPECT_LE(ratio(Duration(0), half), 3.6);
  // At once, also for requests that waited before.
  EXPECT_GE(ratio(half, half + milliseconds(500)), 1 / 4.5);
  EXPECT_LE(ratio(half, half + milliseconds(500)), 1 / 2.0);
  EXPECT_GE(ratio(half, 2 * half), 1 / 3.6);
  EXPECT_LE(ratio(half, 2 * half), 1 / 2.4);
}

}  // namespace
}  // namespace castor::simulation

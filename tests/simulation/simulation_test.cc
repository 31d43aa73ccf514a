// What the scheduler promises, on random traffic: each request ends exactly once, no budget is
// exceeded, the device never idles beside work, and the order is kept.

#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"

namespace castor::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SimulationTest : public testing::Test, protected Seeded {
 protected:
  // A few sources of any kind, from idle to several times what the device can serve.
  Workload RandomWorkload() {
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
      const int64_t high = closed || Uniform(0, 4) == 0 ? 8000 : 500;
      source.draw = [draw = Attention(1, high, UpTo(5), deadline), priority](std::mt19937& random) {
        Request request = draw(random);
        request.priority = priority;
        return request;
      };
      workload.sources.push_back(std::move(source));
    }
    return workload;
  }

  Settings RandomSettings() {
    Settings settings;
    settings.budgets.requests = UpTo(200);
    settings.budgets.tokens = Uniform(8000, 100'000);
    settings.limits.max_tokens = UpTo(10'000);
    settings.limits.max_requests = UpTo(64);
    if (Uniform(0, 2) == 0) settings.limits.delay = milliseconds(UpTo(5));
    return settings;
  }
};

TEST_F(SimulationTest, EachRequestEndsOnceWithinTheBudgets) {
  for (int round = 0; round < Scaled(200); ++round) {
    const Workload workload = RandomWorkload();
    const Settings settings = RandomSettings();
    Simulation simulation(workload, settings, random_());
    simulation.on_event = [&](const Simulation& at) {
      EXPECT_LE(at.in_use().requests, settings.budgets.requests);
      EXPECT_LE(at.in_use().tokens, settings.budgets.tokens);
      if (settings.limits.delay.count() == 0) {
        EXPECT_FALSE(at.device_idle() && at.waiting()) << "it idles beside work";
      }
    };
    const std::vector<Outcome> outcomes = simulation.Run();
    std::set<Ticket> tickets;
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(tickets.insert(outcome.ticket).second) << "ended twice";
      const auto& deadline = outcome.request.deadline;
      switch (outcome.fate) {
        case Fate::kAnswered:
          EXPECT_GE(outcome.ended, outcome.started + outcome.request.work);
          EXPECT_TRUE(!deadline || outcome.started < outcome.arrived + *deadline)
              << "it was started when nobody waited for it any more";
          break;
        case Fate::kExpired:
          EXPECT_TRUE(deadline && outcome.latency() == *deadline);
          break;
        case Fate::kRefused:
          EXPECT_EQ(outcome.latency(), Duration(0));
          break;
      }
    }
    EXPECT_EQ(tickets.empty() ? 0 : *tickets.rbegin(), tickets.size()) << "one never ended";
    EXPECT_EQ(simulation.in_use().requests, 0);
    EXPECT_EQ(simulation.in_use().tokens, 0);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(SimulationTest, BatchesBeginWithTheFirstByRankAndKeepTheirLimits) {
  for (int round = 0; round < Scaled(200); ++round) {
    const Workload workload = RandomWorkload();
    Settings settings = RandomSettings();
    settings.limits.delay = {};
    Simulation simulation(workload, settings, random_());
    simulation.on_batch = [&](const Formed& formed) {
      int64_t tokens = 0;
      for (const auto& job : formed.jobs) {
        EXPECT_EQ(job->batch_key, formed.jobs.front()->batch_key);
        tokens += job->tokens;
      }
      EXPECT_TRUE(formed.jobs.size() == 1 || tokens <= settings.limits.max_tokens);
      EXPECT_LE(static_cast<int64_t>(formed.jobs.size()), settings.limits.max_requests);
      Queue& queue = formed.queue;
      if (const Queue::Group* const next = queue.FirstDue(formed.at)) {
        EXPECT_LT(formed.jobs.front()->rank, next->head().rank) << "it was overtaken";
      }
    };
    simulation.Run();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(SimulationTest, ASeedMakesTheSameRunAgain) {
  const Workload workload = RandomWorkload();
  const Settings settings = RandomSettings();
  const uint32_t seed = random_();
  const auto first = Simulation(workload, settings, seed).Run();
  const auto second = Simulation(workload, settings, seed).Run();
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].ticket, second[i].ticket);
    EXPECT_EQ(first[i].ended, second[i].ended);
  }
}

// The simulation itself, against a sum that can be done by hand.
TEST_F(SimulationTest, ALoneClosedSourceKeepsTheDeviceBusy) {
  Source source{.name = "one", .in_flight = 1};
  source.draw = [](std::mt19937&) { return Request{.work = milliseconds(9)}; };
  const Workload workload{.name = "one", .sources = {source}, .length = seconds(10)};
  Simulation simulation(workload, {.launch = milliseconds(1)}, 1);
  const auto outcomes = simulation.Run();
  EXPECT_EQ(outcomes.size(), 1000u);
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.latency(), milliseconds(10));
  EXPECT_EQ(simulation.busy(), seconds(10));
}

}  // namespace
}  // namespace castor::simulation

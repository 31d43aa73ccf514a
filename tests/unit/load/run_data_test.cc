#include "client/load/measure/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "client/load/measure/run_json.h"
#include "tests/support/seeded.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class RunDataTest : public ::testing::Test, protected Seeded {};

TEST_F(RunDataTest, MergingAddsAllCounts) {
  RunData a = RandomRun(random_), b = RandomRun(random_);
  b.open_loop = a.open_loop;
  b.seconds.pop_back();
  b.begun = "2026-01-01T00:00:00Z";
  b.clients[0].seconds = 3;
  RunData merged = a;
  merged.Merge(b);

  const Cell total = merged.Total(), total_a = a.Total(), total_b = b.Total();
  for (int i = 0; i < kOutcomes; ++i) {
    EXPECT_EQ(total.outcomes[i], total_a.outcomes[i] + total_b.outcomes[i]);
  }
  EXPECT_EQ(total.intended.count(), total_a.intended.count() + total_b.intended.count());
  EXPECT_EQ(total.stages.network.sum(),
            total_a.stages.network.sum() + total_b.stages.network.sum());
  EXPECT_EQ(total.verified.equal, total_a.verified.equal + total_b.verified.equal);
  EXPECT_EQ(total.request_bytes, total_a.request_bytes + total_b.request_bytes);
  EXPECT_EQ(total.kernels.at("cast"), total_a.kernels.at("cast") + total_b.kernels.at("cast"));
  EXPECT_EQ(merged.OfClass(0).above_goal[1],
            a.OfClass(0).above_goal[1] + b.OfClass(0).above_goal[1]);
  EXPECT_TRUE(total.above_goal.empty());
  EXPECT_EQ(merged.cells[1][2].good, a.cells[1][2].good + b.cells[1][2].good);
  ASSERT_EQ(merged.seconds.size(), 3u);
  EXPECT_EQ(merged.seconds[1][0].in_flight, a.seconds[1][0].in_flight + b.seconds[1][0].in_flight);
  EXPECT_EQ(merged.seconds[2][1].in_flight, a.seconds[2][1].in_flight);
  EXPECT_EQ(merged.seconds[1][1].max_lag_ns,
            std::max(a.seconds[1][1].max_lag_ns, b.seconds[1][1].max_lag_ns));
  EXPECT_EQ(merged.clients.size(), 2u);
  EXPECT_EQ(merged.MeasuredSeconds(), 3);
  EXPECT_EQ(merged.begun, b.begun);
  EXPECT_EQ(merged.asked_rate, a.asked_rate + b.asked_rate);
  EXPECT_EQ(merged.servers[1].calls[0], a.servers[1].calls[0] + b.servers[1].calls[0]);
}

TEST_F(RunDataTest, TheOrderOfMergingDoesNotMatter) {
  RunData a = RandomRun(random_), b = RandomRun(random_);
  b.open_loop = a.open_loop;
  RunData ab = a, ba = b;
  ab.Merge(b);
  ba.Merge(a);
  ab.clients.clear();  // these stand in the order of merging
  ba.clients.clear();
  EXPECT_EQ(ToJson(ab), ToJson(ba));
}

TEST_F(RunDataTest, ReadingsOfOneServerSpanTheFirstAndTheLast) {
  RunData a = RandomRun(random_), b = a;
  a.servers[1].before = {{"x", 5}, {"only", 1}};
  a.servers[1].after = {{"x", 50}};
  b.servers[1].before = {{"x", 3}};
  b.servers[1].after = {{"x", 60}, {"late", 2}};
  a.Merge(b);
  EXPECT_THAT(a.servers[1].before, ElementsAre(Pair("only", 1), Pair("x", 3)));
  EXPECT_THAT(a.servers[1].after, ElementsAre(Pair("late", 2), Pair("x", 60)));
}

TEST_F(RunDataTest, RunsOfOtherPlansDoNotMerge) {
  const RunData run = RandomRun(random_);
  const std::pair<const char*, std::function<void(RunData&)>> cases[] = {
      {"their classes differ", [](RunData& r) { r.classes[0] = "other"; }},
      {"their endpoints differ", [](RunData& r) { r.endpoints.pop_back(); }},
      {"their objectives differ",
       [](RunData& r) { r.objectives[0].latencies[0].limit += std::chrono::nanoseconds(1); }},
      {"their objectives differ", [](RunData& r) { r.objectives[1].max_error_share.reset(); }},
      {"their numbers of cells differ", [](RunData& r) { r.cells[1].pop_back(); }},
      {"open and closed loop", [](RunData& r) { r.open_loop = !r.open_loop; }},
  };
  for (const auto& [message, change] : cases) {
    RunData other = run, merged = run;
    change(other);
    try {
      merged.Merge(other);
      ADD_FAILURE() << "merged though " << message;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
    EXPECT_EQ(ToJson(merged), ToJson(run)) << "nothing changed";
  }
}

TEST_F(RunDataTest, MessagesStayFewAndLoseNoCount) {
  Cell sum;
  int64_t count = 0;
  for (int i = 0; i < 100; ++i) {
    Cell cell;
    cell.messages = {{"message " + std::to_string(i), i + 1}, {"often", 1}};
    count += i + 2;
    sum.Add(cell);
  }
  EXPECT_EQ(sum.messages.size(), 32u);
  EXPECT_EQ(sum.messages.at("often"), 100);
  int64_t kept = 0;
  for (const auto& [message, times] : sum.messages) kept += times;
  EXPECT_EQ(kept, count);
}

TEST_F(RunDataTest, CancelledRequestsAreNoErrors) {
  RunData run = EmptyRun(1);
  Count({.outcome = Outcome::kOk}, run, 6);
  Count({.outcome = Outcome::kCancelled}, run, 90);
  Count({.outcome = Outcome::kRefused}, run, 1);
  Count({.outcome = Outcome::kDropped}, run, 1);
  const Cell total = run.Total();
  EXPECT_EQ(total.planned(), 98);
  EXPECT_EQ(total.counted(), 8);
  EXPECT_DOUBLE_EQ(total.error_share(), 0.25);
  EXPECT_EQ(Cell().error_share(), 0);
}

}  // namespace
}  // namespace castor::load

#include "tests/bench/load_tester/script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/support/seeded.h"

namespace castor::bench {
namespace {

constexpr int64_t kMs = 1'000'000;

class ScriptTest : public ::testing::Test, protected Seeded {};

TEST_F(ScriptTest, ParallelRequestsDoNotWaitForEachOther) {
  Script script({.service_ns = 2 * kMs});
  for (const int64_t arrival : {0L, 0L, 1L, 5 * kMs, 5 * kMs}) {
    EXPECT_EQ(script.Next(arrival).at_ns, arrival + 2 * kMs);
  }
}

TEST_F(ScriptTest, WhatIsDueInAStallLeavesAtItsEnd) {
  const ScriptOptions options = {
      .service_ns = 20 * kMs, .stall_ns = 1000 * kMs, .stall_every_ns = 10'000 * kMs};
  Script script(options);
  const std::vector<std::pair<int64_t, int64_t>> arrival_and_answer_ms = {
      {0, 20},          {500, 520},       {9979, 9999},     {9980, 11000},   {10'500, 11'000},
      {10'980, 11'000}, {10'981, 11'001}, {19'979, 19'999}, {19'990, 21'000}};
  for (const auto& [arrival, answer] : arrival_and_answer_ms) {
    EXPECT_EQ(script.Next(arrival * kMs).at_ns, answer * kMs) << arrival;
  }
}

TEST_F(ScriptTest, TheQueueServesOneAtATimeInOrder) {
  Script script({.service = ScriptOptions::Service::kQueue, .service_ns = 10});
  const std::vector<std::pair<int64_t, int64_t>> arrival_and_answer = {
      {0, 10}, {1, 20}, {19, 30}, {30, 40}, {39, 50}, {1000, 1010}};
  for (const auto& [arrival, answer] : arrival_and_answer) {
    EXPECT_EQ(script.Next(arrival).at_ns, answer) << arrival;
  }
}

// The slow twin: a server that is stepped through every nanosecond.
TEST_F(ScriptTest, TheQueueIsThatOfASteppedServer) {
  const int64_t service = UpTo(9);
  std::vector<int64_t> arrivals(200);
  for (int64_t& arrival : arrivals) arrival = Uniform(0, 1500);
  std::sort(arrivals.begin(), arrivals.end());

  std::vector<int64_t> stepped;
  size_t came = 0;
  int64_t left = 0;  // of the service that is going on
  for (int64_t now = 0; stepped.size() < arrivals.size(); ++now) {
    if (left > 0 && --left == 0) stepped.push_back(now);
    while (came < arrivals.size() && arrivals[came] <= now) ++came;
    if (left == 0 && stepped.size() < came) left = service;
  }

  Script script({.service = ScriptOptions::Service::kQueue, .service_ns = service});
  for (size_t i = 0; i < arrivals.size(); ++i) {
    EXPECT_EQ(script.Next(arrivals[i]).at_ns, stepped[i]) << "request " << i;
  }
}

TEST_F(ScriptTest, SharesAreKeptAndTheSeedFixesThem) {
  const ScriptOptions options = {
      .refuse_share = 0.2, .wrong_share = 0.1, .silent_share = 0.05, .seed = random_()};
  Script one(options), same(options);
  ScriptOptions reseeded = options;
  reseeded.seed = options.seed + 1;
  Script other(reseeded);
  constexpr int kRequests = 100'000;
  std::map<Answer, int> counts;
  int differ = 0;
  for (int i = 0; i < kRequests; ++i) {
    const Answer answer = one.Next(i).answer;
    ++counts[answer];
    ASSERT_EQ(same.Next(i).answer, answer) << i;
    differ += other.Next(i).answer != answer ? 1 : 0;
  }
  // Six standard deviations of a binomial count are at most 760.
  EXPECT_NEAR(counts[Answer::kRefused], 0.2 * kRequests, 760);
  EXPECT_NEAR(counts[Answer::kWrong], 0.1 * kRequests, 760);
  EXPECT_NEAR(counts[Answer::kNone], 0.05 * kRequests, 760);
  EXPECT_NEAR(counts[Answer::kGood], 0.65 * kRequests, 910);
  EXPECT_GT(differ, kRequests / 4);
}

TEST_F(ScriptTest, ARefusalTakesNoPlaceInTheQueue) {
  Script script({.service = ScriptOptions::Service::kQueue,
                 .service_ns = 10,
                 .refuse_share = 0.5,
                 .seed = random_()});
  int64_t served = 0;
  for (int i = 0; i < 100; ++i) {
    const Departure departure = script.Next(0);
    if (departure.answer == Answer::kRefused) {
      EXPECT_EQ(departure.at_ns, 0);
    } else {
      EXPECT_EQ(departure.at_ns, 10 * ++served);
    }
  }
  EXPECT_GT(served, 0);
  EXPECT_LT(served, 100);
}

}  // namespace
}  // namespace castor::bench

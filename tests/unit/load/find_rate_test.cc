#include "client/load/search/find_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "client/load/search/evidence.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/load/md1.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::JudgeByCounts;
using testing::Md1RateFor;
using testing::Md1Server;
using testing::Md1WaitAtMost;

constexpr double kService = 0.001;  // seconds
const LatencyGoal kGoal{.quantile = 0.99, .limit = milliseconds(8)};
const std::atomic<bool> kNever = false;

uint64_t FreshSeed() {
  const uint64_t seed = std::random_device()();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

SearchOptions Options() {
  return {.start_rate = 50,
          .tolerance = 0.01,
          .probe = seconds(60),
          .confirmation = seconds(240),
          .max_time = std::chrono::hours(24)};
}

// In virtual time, with JudgeByCounts.
FoundRate Find(Md1Server& server, const SearchOptions& options) {
  return FindRate([&](double rate, auto duration) { return server.Run(rate, duration); },
                  JudgeByCounts, options, {}, kNever);
}

const Finding kLagged{"client-lag", false, "p99 of the client's lag is 3 ms"};

TEST(Md1, TheFormulaIsThatOfTheSimulatedQueue) {
  EXPECT_NEAR(Md1WaitAtMost(0, 0.7), 0.3, 1e-12);
  // The published mean, rho / (2 (1 - rho)), from the formula's own distribution.
  double mean = 0;
  for (double t = 0.0005; t < 22; t += 0.001) mean += 0.001 * (1 - Md1WaitAtMost(t, 0.7));
  EXPECT_NEAR(mean, 0.7 / 0.6, 1e-4);
  Md1Server server(kService, kGoal, FreshSeed());
  const RunData run = server.Run(700, seconds(2000));
  for (const double wait_ms : {1.0, 2.0, 4.0, 7.0}) {
    const double above = static_cast<double>(run.cells[0][0].intended.CountAbove(
                             static_cast<int64_t>((1 + wait_ms) * 1e6))) /
                         static_cast<double>(run.cells[0][0].planned());
    EXPECT_NEAR(above, 1 - Md1WaitAtMost(wait_ms, 0.7), 0.008) << wait_ms;
  }
}

TEST(FindRate, IsWithinThreePercentOfTheTruthForManySeeds) {
  const double truth = Md1RateFor(kService, kGoal.quantile, milliseconds(8).count() / 1e3);
  const uint64_t seed = FreshSeed();
  SearchOptions options = Options();
  options.probe = seconds(120);  // what 85,000 requests can tell
  options.confirmation = seconds(480);
  double worst = 0;
  double sum = 0;
  constexpr int kSearches = Scaled(25);
  for (int i = 0; i < kSearches; ++i) {
    Md1Server server(kService, kGoal, seed + static_cast<uint64_t>(i));
    const FoundRate found = Find(server, options);
    ASSERT_EQ(found.end, SearchEnd::kFound) << found.text;
    EXPECT_TRUE(found.confirmed);
    EXPECT_LT(found.met, found.missed);
    const double error = found.met / truth - 1;
    EXPECT_LT(std::abs(error), 0.03) << found.met << " of " << truth << ", search " << i;
    worst = std::max(worst, std::abs(error));
    sum += error;
  }
  std::printf("truth %.1f/s; worst error %.2f %%, mean %.2f %%\n", truth, 100 * worst,
              100 * sum / kSearches);
  RecordProperty("worst_error", std::to_string(worst));
}

TEST(FindRate, IsNotFooledByRunsThatASlowNeighbourSpoils) {
  // One run of six is on a machine that is a fifth slower.
  const double truth = Md1RateFor(kService, kGoal.quantile, milliseconds(8).count() / 1e3);
  const uint64_t seed = FreshSeed();
  int near = 0;
  constexpr int kSearches = Scaled(20);
  for (int i = 0; i < kSearches; ++i) {
    Md1Server server(kService, kGoal, seed + static_cast<uint64_t>(i));
    std::mt19937_64 random(seed + 1000 + static_cast<uint64_t>(i));
    double slow = 1;
    server.slowness = [&] { return slow; };
    const FoundRate found = FindRate(
        [&](double rate, auto duration) {
          slow = random() % 6 == 0 ? 1.2 : 1;
          return server.Run(rate, duration);
        },
        JudgeByCounts, Options(), {}, kNever);
    EXPECT_LT(found.met, 1.03 * truth);
    // Never below what the slow machine could do, less what its doubt costs.
    if (found.end == SearchEnd::kFound && found.met > truth / 1.2 * 0.95) ++near;
  }
  std::printf("near: %d of %d\n", near, kSearches);
  EXPECT_GE(near, kSearches * 3 / 4);
}

TEST(FindRate, SaysThatAServerNeverMeets) {
  Md1Server server(kService, {.quantile = 0.99, .limit = std::chrono::microseconds(900)},
                   FreshSeed());
  SearchOptions options = Options();
  options.least_rate = 5;
  const FoundRate found = Find(server, options);
  EXPECT_EQ(found.end, SearchEnd::kNeverMet);
  EXPECT_EQ(found.met, 0);
  EXPECT_EQ(found.missed, 5);
}

TEST(FindRate, HalvesFromAStartThatIsTooHigh) {
  const double truth = Md1RateFor(kService, kGoal.quantile, milliseconds(8).count() / 1e3);
  Md1Server server(kService, kGoal, FreshSeed());
  SearchOptions options = Options();
  options.start_rate = 7000;
  const FoundRate found = Find(server, options);
  EXPECT_EQ(found.end, SearchEnd::kFound);
  EXPECT_NEAR(found.met / truth, 1, 0.03);
}

TEST(FindRate, SaysThatTheGreatestRateIsStillMet) {
  Md1Server server(kService, kGoal, FreshSeed());
  SearchOptions options = Options();
  options.greatest_rate = 300;
  const FoundRate found = Find(server, options);
  EXPECT_EQ(found.end, SearchEnd::kMetAtGreatest);
  EXPECT_EQ(found.met, 300);
  EXPECT_EQ(found.missed, 0);
  EXPECT_TRUE(found.confirmed);
}

TEST(FindRate, EndsAtTheClientsLimitInsteadOfAWrongAnswer) {
  // The server could do more than 800/s, the client sends 400/s.
  Md1Server server(kService, kGoal, FreshSeed());
  const FoundRate found =
      FindRate([&](double rate, auto duration) { return server.Run(rate, duration); },
               [](const RunData& run) {
                 Verdict verdict = JudgeByCounts(run);
                 if (run.asked_rate > 400) verdict.validity.push_back(kLagged);
                 return verdict;
               },
               Options(), {}, kNever);
  EXPECT_EQ(found.end, SearchEnd::kClientLimit);
  EXPECT_LE(found.met, 400);
  EXPECT_GT(found.met, 395);
  EXPECT_GT(found.missed, 400);
  EXPECT_NE(found.text.find("the client was the limit"), std::string::npos) << found.text;
}

TEST(FindRate, FindsTheServersLimitBelowTheClients) {
  // Doubling from 50 overshoots to 1,600/s, where the client fails; the server's limit is lower.
  const double truth = Md1RateFor(kService, kGoal.quantile, milliseconds(8).count() / 1e3);
  Md1Server server(kService, kGoal, FreshSeed());
  const FoundRate found =
      FindRate([&](double rate, auto duration) { return server.Run(rate, duration); },
               [](const RunData& run) {
                 Verdict verdict = JudgeByCounts(run);
                 if (run.asked_rate > 1000) verdict.validity.push_back(kLagged);
                 return verdict;
               },
               Options(), {}, kNever);
  EXPECT_EQ(found.end, SearchEnd::kFound);
  EXPECT_NEAR(found.met / truth, 1, 0.03);
}

TEST(FindRate, RepeatsARunInWhichTheClientHadABadMoment) {
  Md1Server server(kService, kGoal, FreshSeed());
  int runs = 0;
  SearchOptions options = Options();
  options.greatest_rate = 200;
  const FoundRate found =
      FindRate([&](double rate, auto duration) { return server.Run(rate, duration); },
               [&](const RunData& run) {
                 Verdict verdict = JudgeByCounts(run);
                 if (++runs == 2) verdict.validity.push_back(kLagged);
                 return verdict;
               },
               options, {}, kNever);
  EXPECT_EQ(found.end, SearchEnd::kMetAtGreatest);
  EXPECT_EQ(found.met, 200);
}

TEST(FindRate, EndsWithTheRuleWhenRunsCannotBeBelieved) {
  Md1Server server(kService, kGoal, FreshSeed());
  const FoundRate found =
      FindRate([&](double rate, auto duration) { return server.Run(rate, duration); },
               [](const RunData& run) {
                 Verdict verdict = JudgeByCounts(run);
                 if (run.asked_rate > 150) {
                   verdict.validity.push_back({"counts-agree", false, "the server counted 3 more"});
                 }
                 return verdict;
               },
               Options(), {}, kNever);
  EXPECT_EQ(found.end, SearchEnd::kInvalid);
  EXPECT_EQ(found.met, 100);
  EXPECT_FALSE(found.confirmed);
  EXPECT_NE(found.text.find("counts-agree"), std::string::npos) << found.text;
}

TEST(FindRate, TakesWorkThatPilesUpForAMiss) {
  // All is answered in time, but ever later: it would not last.
  Md1Server server(kService, kGoal, FreshSeed());
  const FoundRate found =
      FindRate([&](double rate, auto duration) { return server.Run(rate, duration); },
               [](const RunData& run) {
                 Verdict verdict = JudgeByCounts(run);
                 if (run.asked_rate > 320)
                   verdict.validity.push_back({"stationary", false, "in flight"});
                 return verdict;
               },
               Options(), {}, kNever);
  EXPECT_EQ(found.end, SearchEnd::kFound);
  EXPECT_LE(found.met, 320);
  EXPECT_GT(found.met, 316);
}

TEST(FindRate, StepsDownWhenTheLongerRunMisses) {
  // Long runs meet a slower server: what a warm cache or a governor does.
  const double truth = Md1RateFor(kService * 1.1, kGoal.quantile, milliseconds(8).count() / 1e3);
  Md1Server server(kService, kGoal, FreshSeed());
  double slow = 1;
  server.slowness = [&] { return slow; };
  const FoundRate found = FindRate(
      [&](double rate, auto duration) {
        slow = duration == Options().confirmation ? 1.1 : 1;
        return server.Run(rate, duration);
      },
      JudgeByCounts, Options(), {}, kNever);
  EXPECT_EQ(found.end, SearchEnd::kFound);
  EXPECT_TRUE(found.confirmed);
  EXPECT_LT(found.met / truth, 1.03);
  EXPECT_GT(found.met / truth, 0.9);
}

TEST(FindRate, KeepsWithinItsRunsAndTime) {
  Md1Server server(kService, kGoal, FreshSeed());
  SearchOptions options = Options();
  options.max_runs = 7;
  FoundRate found = Find(server, options);
  EXPECT_EQ(found.end, SearchEnd::kOutOfRuns);
  EXPECT_EQ(found.probes.size(), 7u);
  EXPECT_GT(found.met, 0);
  EXPECT_GT(found.missed, found.met);

  options = Options();
  options.max_time = seconds(500);
  found = Find(server, options);
  EXPECT_EQ(found.end, SearchEnd::kOutOfTime);
  std::chrono::nanoseconds sum{0};
  for (const Probe& probe : found.probes) sum += probe.duration;
  EXPECT_LE(sum, seconds(500));
}

TEST(FindRate, TellsOfEachRunAndStopsWhenAsked) {
  Md1Server server(kService, kGoal, FreshSeed());
  std::atomic<bool> stop = false;
  int before = 0;
  int after = 0;
  const FoundRate found =
      FindRate([&](double rate, auto duration) { return server.Run(rate, duration); },
               JudgeByCounts, Options(),
               [&](const SearchStep& step) {
                 ++(step.done == nullptr ? before : after);
                 if (step.done != nullptr) {
                   EXPECT_EQ(step.done->rate, step.rate);
                 }
                 if (after == 3) stop = true;
               },
               stop);
  EXPECT_EQ(found.end, SearchEnd::kStopped);
  EXPECT_EQ(before, 3);
  EXPECT_EQ(after, 3);
  EXPECT_EQ(found.probes.size(), 3u);
}

TEST(FindRate, RefusesOptionsThatMakeNoSense) {
  Md1Server server(kService, kGoal, 1);
  for (auto spoil : std::vector<void (*)(SearchOptions&)>{
           [](SearchOptions& o) { o.tolerance = 0; }, [](SearchOptions& o) { o.least_rate = 0; },
           [](SearchOptions& o) { o.greatest_rate = 1; },
           [](SearchOptions& o) { o.confirmation = seconds(1); }}) {
    SearchOptions options = Options();
    spoil(options);
    EXPECT_THROW(Find(server, options), std::invalid_argument);
  }
}

TEST(Evidence, KnowsThatRequestsOfOneQueueAreLateTogether) {
  // Truly at the edge: |sureness| above 3 should be rare, and would not be for independent
  // requests.
  const double truth = Md1RateFor(kService, kGoal.quantile, milliseconds(8).count() / 1e3);
  Md1Server server(kService, kGoal, FreshSeed());
  int sure = 0;
  for (int i = 0; i < 40; ++i) {
    Evidence evidence;
    evidence.Add(server.Run(truth, seconds(60)));
    if (std::abs(evidence.Sureness()) > 3) ++sure;
  }
  EXPECT_LE(sure, 4);
}

TEST(Evidence, CountsErrorsAgainstEveryGoalAndCancelledOnesAgainstNone) {
  Md1Server server(kService, kGoal, 1);
  server.change = [](RunData& run) {
    run.cells[0][0].outcomes[static_cast<size_t>(Outcome::kCancelled)] = 1'000'000;
    run.cells[0][0].outcomes[static_cast<size_t>(Outcome::kRefused)] =
        run.cells[0][0].of(Outcome::kOk);
    run.seconds.clear();
  };
  Evidence evidence;
  evidence.Add(server.Run(10, seconds(1000)));
  EXPECT_NEAR(evidence.Worst(), 0.5 / 0.01, 1e-9);
  EXPECT_LT(evidence.Sureness(), -10);
}

}  // namespace
}  // namespace castor::load

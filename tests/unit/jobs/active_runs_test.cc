// Who may pass a running batch, and what that costs those that wait.
#include "engine/jobs/active_runs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

namespace castor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class ActiveRunsTest : public ::testing::Test {
 protected:
  // Begins a run of one request, or of as many alike as its time is worth.
  ActiveRuns::Id BeginRun(double ms, double longest_ms = 0) {
    return runs_.Begin(
        {.predicted_us = ms * 1e3, .longest_us = (longest_ms > 0 ? longest_ms : ms) * 1e3}, now_);
  }
  ActiveRuns::Id Pass(double ms) {
    return runs_.Begin({.predicted_us = ms * 1e3, .longest_us = ms * 1e3, .passes = true}, now_);
  }
  double EndRun(ActiveRuns::Id id) { return runs_.End(id, now_) * 1e-3; }
  void Elapse(double ms) { now_ += microseconds(static_cast<int64_t>(ms * 1e3)); }

  double MostMs() const { return runs_.MayPass(now_).most_us * 1e-3; }
  double WaitMs(double ms) const { return runs_.WaitFor(ms * 1e3, now_).us * 1e-3; }
  double PassedMs(double ms) const { return runs_.WaitFor(ms * 1e3, now_).passed_us * 1e-3; }

  // A run that was predicted to take `predicted_ms` takes `ms`.
  void Finish(double predicted_ms, double ms) {
    const ActiveRuns::Id id = BeginRun(predicted_ms);
    Elapse(ms);
    EndRun(id);
  }

  ActiveRuns runs_;
  TimePoint now_ = TimePoint(seconds(1000));
};

TEST_F(ActiveRunsTest, NothingToPassAndNothingToWaitForOnAFreeDevice) {
  EXPECT_TRUE(runs_.MayPass(now_).closed());
  EXPECT_EQ(WaitMs(10), 0);
  EXPECT_EQ(PassedMs(10), 0);
  EndRun(BeginRun(100));
  EXPECT_TRUE(runs_.MayPass(now_).closed());
  EXPECT_EQ(WaitMs(1000), 0);
}

TEST_F(ActiveRunsTest, OnlyWhatIsMuchShorterThanTheRestMayPass) {
  BeginRun(60);
  EXPECT_DOUBLE_EQ(MostMs(), 15);
  Elapse(20);
  EXPECT_DOUBLE_EQ(MostMs(), 10);
  Elapse(36);
  EXPECT_DOUBLE_EQ(MostMs(), 1.4) << "a tenth of what it took, now that it takes longer";
}

TEST_F(ActiveRunsTest, AndThanItsLongestRequest) {
  BeginRun(60, 20);
  EXPECT_DOUBLE_EQ(MostMs(), 5) << "more of its kind do not pass a batch";
  Elapse(50);
  EXPECT_DOUBLE_EQ(MostMs(), 2.5);
}

TEST_F(ActiveRunsTest, ThoseThatPassTakeNoMoreThanItHasHadItselfAndAnAllowance) {
  BeginRun(10'000);
  EXPECT_DOUBLE_EQ(MostMs(), 20) << "the allowance";
  Elapse(30);
  EXPECT_DOUBLE_EQ(MostMs(), 50);
  const ActiveRuns::Id first = Pass(50);
  Elapse(50);
  EXPECT_DOUBLE_EQ(EndRun(first), 50);
  EXPECT_DOUBLE_EQ(MostMs(), 0);
  EXPECT_TRUE(runs_.MayPass(now_).closed());
  Elapse(7);
  EXPECT_DOUBLE_EQ(MostMs(), 7);
  // One that takes longer than predicted uses up what would have come later.
  const ActiveRuns::Id second = Pass(7);
  Elapse(100);
  EndRun(second);
  EXPECT_EQ(MostMs(), 0);
  Elapse(93);
  EXPECT_DOUBLE_EQ(MostMs(), 0);
  Elapse(1);
  EXPECT_DOUBLE_EQ(MostMs(), 1);
}

TEST_F(ActiveRunsTest, OtherTenantsPassIfTheyEndInItsFirstHalf) {
  runs_.Begin({.predicted_us = 16e3, .longest_us = 4e3, .tenant = "greedy", .half_turn = 7}, now_);
  ActiveRuns::Passage passage = runs_.MayPass(now_);
  EXPECT_DOUBLE_EQ(passage.MostUs("greedy", 6), 1e3);
  EXPECT_DOUBLE_EQ(passage.MostUs("modest", 6), 16e3) << "all that is left";
  EXPECT_DOUBLE_EQ(passage.MostUs("modest", 7), 1e3) << "it has had as much";
  EXPECT_DOUBLE_EQ(passage.MostUs("", 6), 16e3) << "without a name is a tenant too";
  Elapse(10);
  passage = runs_.MayPass(now_);
  EXPECT_DOUBLE_EQ(passage.MostUs("modest", 6), 6e3);
  EXPECT_FALSE(passage.closed());
}

TEST_F(ActiveRunsTest, OtherTenantsLeaveASmallerShare) {
  runs_.Begin({.predicted_us = 1e6, .longest_us = 1e6, .tenant = "greedy", .half_turn = 7}, now_);
  EXPECT_DOUBLE_EQ(runs_.MayPass(now_).MostUs("greedy", 0), 20e3);
  EXPECT_DOUBLE_EQ(runs_.MayPass(now_).MostUs("modest", 0), 100e3);
  const ActiveRuns::Id passing = Pass(100);
  Elapse(100);
  EndRun(passing);
  EXPECT_TRUE(runs_.MayPass(now_).closed());
  Elapse(10);
  EXPECT_DOUBLE_EQ(runs_.MayPass(now_).MostUs("greedy", 0), 0) << "they count against each other";
  EXPECT_DOUBLE_EQ(runs_.MayPass(now_).MostUs("modest", 0), 30e3) << "three times its own";
}

TEST_F(ActiveRunsTest, ABatchOfSeveralTenantsIsPassedByNobodysTurn) {
  BeginRun(40, 4);
  EXPECT_DOUBLE_EQ(runs_.MayPass(now_).MostUs("modest", -1), 1e3);
}

TEST_F(ActiveRunsTest, APassageIsOpenUnlessItSaysOtherwise) {
  const ActiveRuns::Passage any;
  EXPECT_TRUE(std::isinf(any.MostUs("", 0)));
  EXPECT_FALSE(any.closed());
  EXPECT_TRUE((ActiveRuns::Passage{.most_us = 0, .others_us = 0, .tenant = "a"}).closed());
  EXPECT_TRUE((ActiveRuns::Passage{.most_us = 0, .others_us = 5}).closed())
      << "there are no others";
  EXPECT_FALSE((ActiveRuns::Passage{.most_us = 0, .others_us = 5, .tenant = "a"}).closed());
}

TEST_F(ActiveRunsTest, AtMostFourAreNested) {
  for (const double ms : {100'000, 1000, 100}) {
    Pass(ms);
    Elapse(2);
    EXPECT_GT(MostMs(), 0);
    EXPECT_GT(PassedMs(0.001), 0);
  }
  const ActiveRuns::Id top = Pass(10);
  EXPECT_TRUE(runs_.MayPass(now_).closed());
  EXPECT_EQ(WaitMs(0.001), 10) << "until the top one ends; then it may pass the next";
  EXPECT_GT(PassedMs(0.001), 0);
  EndRun(top);
  EXPECT_FALSE(runs_.MayPass(now_).closed());
}

TEST_F(ActiveRunsTest, OnlyTheTopRunGoesOn) {
  const ActiveRuns::Id bottom = BeginRun(1000);
  Elapse(100);
  const ActiveRuns::Id middle = Pass(100);
  Elapse(30);
  const ActiveRuns::Id top = Pass(10);
  Elapse(7);
  EXPECT_DOUBLE_EQ(EndRun(top), 7);
  Elapse(2);
  EXPECT_DOUBLE_EQ(EndRun(middle), 32) << "what it was held up for does not count";
  Elapse(3);
  EXPECT_DOUBLE_EQ(EndRun(bottom), 103);
}

TEST_F(ActiveRunsTest, WhatARunIsHeldUpForIsCountedOnce) {
  BeginRun(10'000);
  Elapse(100);
  const ActiveRuns::Id middle = Pass(100);
  Elapse(10);
  const ActiveRuns::Id top = Pass(10);
  Elapse(10);
  EndRun(top);
  EndRun(middle);
  EXPECT_DOUBLE_EQ(MostMs(), 100 + 20 - 20);
}

// A device of depth 2 has another launch in flight: nobody is held up.
TEST_F(ActiveRunsTest, ARunThatDoesNotPassHoldsNobodyUp) {
  const ActiveRuns::Id first = BeginRun(100);
  Elapse(10);
  const ActiveRuns::Id second = BeginRun(50);
  Elapse(10);
  EXPECT_DOUBLE_EQ(WaitMs(1000), 80 + 40);
  EXPECT_DOUBLE_EQ(EndRun(first), 20);
  EXPECT_DOUBLE_EQ(WaitMs(1000), 40);
  EXPECT_DOUBLE_EQ(EndRun(second), 10);
}

TEST_F(ActiveRunsTest, NobodyIsPassedOnAFreeDevice) {
  const ActiveRuns::Id id = Pass(10);
  Elapse(4);
  EXPECT_DOUBLE_EQ(EndRun(id), 4);
}

TEST_F(ActiveRunsTest, WaitsForWhatCannotBePassed) {
  BeginRun(100);
  Elapse(20);
  EXPECT_EQ(WaitMs(20), 0);
  EXPECT_DOUBLE_EQ(PassedMs(20), 80) << "the run keeps its share meanwhile";
  EXPECT_DOUBLE_EQ(WaitMs(21), 80);
  EXPECT_EQ(PassedMs(21), 0);
  Pass(8);
  EXPECT_EQ(WaitMs(2), 0) << "passes both";
  EXPECT_DOUBLE_EQ(PassedMs(2), 88);
  EXPECT_DOUBLE_EQ(WaitMs(20), 8) << "waits for the top one";
  EXPECT_DOUBLE_EQ(PassedMs(20), 80);
  EXPECT_DOUBLE_EQ(WaitMs(21), 88) << "waits for both";
  EXPECT_EQ(PassedMs(21), 0);
}

TEST_F(ActiveRunsTest, AnOverrunIsTakenToNeedATenthOfItsTimeMore) {
  BeginRun(10);
  Elapse(9.5);
  EXPECT_DOUBLE_EQ(WaitMs(1000), 0.95);
  Elapse(10.5);
  EXPECT_DOUBLE_EQ(WaitMs(1000), 2);
  Elapse(80);
  EXPECT_DOUBLE_EQ(WaitMs(1000), 10);
}

TEST_F(ActiveRunsTest, TimesBeforeARunBeganAreNoTimes) {
  const ActiveRuns::Id id = BeginRun(10);
  now_ -= milliseconds(5);  // callers read the clock before they ask
  EXPECT_DOUBLE_EQ(WaitMs(1000), 10);
  EXPECT_EQ(EndRun(id), 0);
}

TEST_F(ActiveRunsTest, ThePaceConvergesToWhatRunsTake) {
  EXPECT_EQ(runs_.Pace(now_), 1);
  Finish(1, 3);
  EXPECT_GT(runs_.Pace(now_), 1);
  EXPECT_LT(runs_.Pace(now_), 1.2) << "one short run says little";
  for (int i = 0; i < 2000; ++i) Finish(1, 3);
  EXPECT_NEAR(runs_.Pace(now_), 3, 0.15);
  for (int i = 0; i < 20'000; ++i) Finish(1, 0.5);
  EXPECT_NEAR(runs_.Pace(now_), 0.5, 0.05);
}

TEST_F(ActiveRunsTest, ThePaceIsForgotten) {
  for (int i = 0; i < 1000; ++i) Finish(1, 3);
  const double pace = runs_.Pace(now_);
  Elapse(1000);
  EXPECT_LT(runs_.Pace(now_), pace);
  EXPECT_GT(runs_.Pace(now_), 2);
  Elapse(20'000);
  EXPECT_NEAR(runs_.Pace(now_), 1, 1e-4);
}

TEST_F(ActiveRunsTest, ThePaceIsDoubtfulUntilRunsHaveTakenSomeTime) {
  EXPECT_EQ(runs_.Doubt(now_), 1);
  for (int i = 0; i < 10; ++i) Finish(1, 10);
  EXPECT_NEAR(runs_.Doubt(now_), 0.5, 0.02);
  for (int i = 0; i < 300; ++i) Finish(1, 10);
  EXPECT_LT(runs_.Doubt(now_), 0.1);
  Elapse(20'000);
  EXPECT_NEAR(runs_.Doubt(now_), 1, 1e-4);
}

TEST_F(ActiveRunsTest, ThePaceIsBounded) {
  Finish(100, 100'000);
  EXPECT_EQ(runs_.Pace(now_), 8);
  Elapse(100'000);
  Finish(100'000, 1);
  EXPECT_EQ(runs_.Pace(now_), 1.0 / 8);
}

TEST_F(ActiveRunsTest, WhatWasNotPredictedHasNoPace) {
  Finish(0, 1000);
  EXPECT_EQ(runs_.Pace(now_), 1);
}

// A run that was cancelled took less time than it was predicted to, and that says nothing.
TEST_F(ActiveRunsTest, WhatWasEndedEarlyHasNoPace) {
  const ActiveRuns::Id id = BeginRun(60'000);
  Elapse(400);
  EXPECT_EQ(runs_.End(id, now_, /*completed=*/false), 400e3);
  EXPECT_EQ(runs_.Pace(now_), 1);
  EXPECT_EQ(runs_.Doubt(now_), 1);
}

// One that was ended at its deadline, far beyond what was predicted, says that the machine is slow:
// where none completes, nothing else would.
TEST_F(ActiveRunsTest, WhatWasEndedLateHasAPace) {
  const ActiveRuns::Id id = BeginRun(1000);
  Elapse(3000);
  EXPECT_EQ(runs_.End(id, now_, /*completed=*/false), 3000e3);
  EXPECT_GT(runs_.Pace(now_), 2);
}

// The time in which it was held up is not its own.
TEST_F(ActiveRunsTest, ThePaceCountsOwnTime) {
  const ActiveRuns::Id bottom = BeginRun(100);
  Elapse(50);
  const ActiveRuns::Id top = Pass(10);
  Elapse(10);
  EndRun(top);
  Elapse(50);
  EndRun(bottom);
  EXPECT_NEAR(runs_.Pace(now_), 1, 1e-9);
}

TEST_F(ActiveRunsTest, WhatRunsHoldsItsMemoryToTheEnd) {
  EXPECT_EQ(runs_.held_bytes(), 0);
  const ActiveRuns::Id below =
      runs_.Begin({.predicted_us = 1e6, .longest_us = 1e6, .device_bytes = 70}, now_);
  const ActiveRuns::Id above = runs_.Begin(
      {.predicted_us = 1e5, .longest_us = 1e5, .passes = true, .device_bytes = 20}, now_);
  EXPECT_EQ(runs_.held_bytes(), 90);
  EXPECT_EQ(runs_.WaitFor(1e3, now_, 90).us, 0) << "it fits beside both";
  EXPECT_EQ(runs_.WaitFor(1e3, now_, 89).us, 1e5) << "it passes the lower one";
  EXPECT_EQ(runs_.WaitFor(1e3, now_, 69).us, 1.1e6) << "it waits for both";
  EndRun(above);
  EXPECT_EQ(runs_.held_bytes(), 70);
  EndRun(below);
  EXPECT_EQ(runs_.held_bytes(), 0);
}

TEST_F(ActiveRunsTest, TellsActivationsFromWorkspaceAndRemembersTheMostOfEach) {
  const ActiveRuns::Id encoding = runs_.Begin(
      {.predicted_us = 1e6, .longest_us = 1e6, .device_bytes = 70, .activation_bytes = 60}, now_);
  const ActiveRuns::Id attending = runs_.Begin(
      {.predicted_us = 1e5, .longest_us = 1e5, .passes = true, .device_bytes = 20}, now_);
  EXPECT_EQ(runs_.memory().now.activations, 60);
  EXPECT_EQ(runs_.memory().now.workspace, 30);
  EndRun(attending);
  EXPECT_EQ(runs_.memory().now.workspace, 10);
  EndRun(encoding);
  EXPECT_EQ(runs_.memory().now.activations, 0);
  EXPECT_EQ(runs_.memory().now.workspace, 0);
  EXPECT_EQ(runs_.memory().peak.activations, 60);
  EXPECT_EQ(runs_.memory().peak.workspace, 30);
}

}  // namespace
}  // namespace castor

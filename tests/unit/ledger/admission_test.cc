// Admission, and the errors of refused requests.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/unit/ledger/ledger_fixture.h"

namespace castor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AdmissionTest : public LedgerFixture {
 protected:
  AdmissionTest()
      : LedgerFixture({.budgets = {.most = {10, 1000, 100'000},
                                   .queued_time = seconds(2),
                                   .request_time = seconds(60)},
                       .limits = {.max_tokens = 1000, .max_requests = 100}}) {}
};

TEST_F(AdmissionTest, BoundsEachBudgetByItself) {
  Admit({.cost = {1, 900, 90'000}});
  EXPECT_EQ(ReasonFor({.cost = {1, 101, 1}}), Reason::kQueueFull);
  EXPECT_EQ(ReasonFor({.cost = {1, 1, 10'001}}), Reason::kQueueFull);
  EXPECT_EQ(ReasonFor({.cost = {10, 1, 1}}), Reason::kQueueFull);
  Admit({.cost = {9, 100, 10'000}, .priority = Priority::kHigh});
}

// An endless stream of large requests does not shut out its own tenant's urgent ones.
TEST_F(AdmissionTest, TheLastEighthOfTheBytesIsForHighPriority) {
  for (int i = 0; i < 7; ++i) Admit({.cost = {1, 1, 12'500}});
  EXPECT_EQ(ReasonFor({.cost = {1, 1, 1}}), Reason::kQueueFull);
  Admit({.cost = {1, 1, 12'500}, .priority = Priority::kHigh});
}

TEST_F(AdmissionTest, TellsTooLargeFromFull) {
  for (Cost cost : {Cost{11, 1, 1}, Cost{1, 1001, 1}, Cost{1, 1, 100'001},
                    Cost{1, std::numeric_limits<int64_t>::max(), 1}}) {
    EXPECT_EQ(ReasonFor({.cost = cost}), Reason::kTooLarge);
  }
  EXPECT_EQ(ledger_->load().inflight_requests, 0);
}

TEST_F(AdmissionTest, ReservationsGiveBackOnce) {
  Job* const job = Admit({.cost = {1, 500, 500}});
  {
    Reservation moved = std::move(job->reservation);
    Reservation assigned;
    assigned = std::move(moved);
    admitted_.clear();
    EXPECT_EQ(ledger_->load().inflight_tokens, 500);
    assigned.ResizeTo(300);
    EXPECT_EQ(ledger_->load().inflight_tokens, 0);
    EXPECT_EQ(ledger_->load().inflight_bytes, 300);
    assigned.ResizeTo(0);
    assigned.Release();
    assigned.Release();
  }
  EXPECT_EQ(ledger_->load().inflight_requests, 0);
  EXPECT_EQ(ledger_->load().inflight_bytes, 0);
}

TEST_F(AdmissionTest, TheTrueCostReplacesTheEstimate) {
  auto job = Make({.cost = {1, 800, 80'000}});
  ASSERT_TRUE(ledger_->Admit(*job).ok());
  job->cost = {1, 30, 300};
  ASSERT_TRUE(ledger_->Enqueue(std::move(job)).ok());
  EXPECT_EQ(ledger_->load().inflight_tokens, 30);
  EXPECT_EQ(ledger_->load().inflight_bytes, 300);
  job = Make({.cost = {1, 970, 1}});
  ASSERT_TRUE(ledger_->Admit(*job).ok());
  job->cost.tokens = 2000;  // an admitted request is not refused later
  ASSERT_TRUE(ledger_->Enqueue(std::move(job)).ok());
  EXPECT_EQ(ReasonFor({.cost = {1, 1, 1}}), Reason::kQueueFull);
}

// The part of the queue's predicted time that must be over before there is room.
TEST_F(AdmissionTest, TheHintIsThePredictedTimeUntilThereIsRoom) {
  const Spec half{.cost = {1, 500, 1}, .ms = 400};
  const Spec tenth{.cost = {1, 100, 1}};
  Push(half);
  Push(half);
  EXPECT_EQ(Hint(tenth).count(), 81);
  EXPECT_EQ(Hint(half).count(), 401);
  const JobList running = Next(), also = Next();
  EXPECT_EQ(Hint(half), milliseconds(200)) << "nothing waits: answers hold the room";
}

TEST_F(AdmissionTest, RefusesWhatCannotBeInTime) {
  EXPECT_EQ(ReasonFor({.ms = 100, .until_ms = 120}), Reason::kDeadlineExceeded);
  EXPECT_FALSE(RetryAfterOf(Refusal({.ms = 100, .until_ms = 120}))) << "nor later";
  Push({.ms = 100, .until_ms = 130});
  const absl::Status second = Refusal({.ms = 100, .until_ms = 200});
  EXPECT_EQ(ReasonOf(second), Reason::kDeadlineExceeded);
  EXPECT_TRUE(RetryAfterOf(second)) << "the queue will be shorter";
  EXPECT_EQ(second.message(),
            "the request would take about 100 ms after 100 ms in the queue, and its deadline is in "
            "200 ms");
  Admit({.ms = 100, .until_ms = 380});
  const JobList running = Next();
  Admit({.ms = 100, .until_ms = 380});
}

TEST_F(AdmissionTest, AWaitHasLessMarginOnceTheSlowdownIsKnown) {
  Job* const waits = Admit({.ms = 100, .until_ms = 200});
  EXPECT_EQ(ReasonFor({.ms = 100, .until_ms = 370}), Reason::kDeadlineExceeded);
  waits->reservation.Release();
  for (int i = 0; i < 20; ++i) {
    Push({.ms = 100});
    Run(Next(), 100);
  }
  Admit({.ms = 100, .until_ms = 200});
  EXPECT_EQ(ReasonFor({.ms = 100, .until_ms = 270}), Reason::kDeadlineExceeded);
  Admit({.ms = 100, .until_ms = 300});
}

// Other work of the machine slows runs, and the time between them.
TEST_F(AdmissionTest, TheForecastIncludesTheSlowdown) {
  for (int i = 0; i < 9; ++i) Push({.ms = 20, .key = std::to_string(i)});
  while (true) {
    JobList jobs = Next();
    if (jobs.empty()) break;
    Run(std::move(jobs), 30);
    clock_->Advance(milliseconds(30));  // before the next run begins
  }
  EXPECT_EQ(ReasonFor({.ms = 100, .until_ms = 300}), Reason::kDeadlineExceeded)
      << "for 20 ms, runs take 30, with gaps of 30";
  Admit({.ms = 100, .until_ms = 450});
}

TEST_F(AdmissionTest, ARunThatIsEndedEarlyDoesNotCountForTheSlowdown) {
  for (int i = 0; i < 20; ++i) {
    Push({.ms = 100});
    JobList jobs = Next();
    const Runs::Id run = ledger_->BeginRun(jobs, /*preempts=*/false);
    clock_->Advance(milliseconds(1));
    ledger_->EndRun(run, /*completed=*/false);
    AnswerAll(std::move(jobs));
  }
  EXPECT_EQ(ReasonFor({.ms = 100, .until_ms = 120}), Reason::kDeadlineExceeded);
  Admit({.ms = 100, .until_ms = 130});
}

// Only a run can correct a learned factor.
TEST_F(AdmissionTest, AnIdleDeviceNowAndThenTriesWhatOnlyPricesLetIn) {
  const Spec slow{.ms = 100, .until_ms = 50, .correction = 4};
  Admit(slow);
  EXPECT_EQ(ReasonFor(slow), Reason::kDeadlineExceeded) << "it is not idle";
  admitted_.clear();
  EXPECT_EQ(ReasonFor(slow), Reason::kDeadlineExceeded) << "too soon after the last trial";
  clock_->Advance(seconds(1));
  Admit(slow);
}

TEST_F(AdmissionTest, RefusesWhatWouldMakeOthersLate) {
  Admit({.ms = 100, .until_ms = 1000});
  Admit({.ms = 600, .until_ms = 900});
  // It would be in time, ahead of both; with a margin of a quarter the second has 120 ms to spare.
  EXPECT_EQ(ReasonFor({.ms = 130, .until_ms = 800}), Reason::kQueueFull);
  Admit({.ms = 10, .until_ms = 800});
  Admit({.ms = 1000});  // behind them
}

TEST_F(AdmissionTest, ThoseOfALowerPriorityGiveWay) {
  Admit({.ms = 600, .until_ms = 800, .priority = Priority::kLow});
  Admit({.ms = 600, .until_ms = 800});
}

TEST_F(AdmissionTest, BoundsPredictedTimes) {
  const absl::Status too_long = Refusal({.ms = 61'000});
  EXPECT_EQ(ReasonOf(too_long), Reason::kTooLarge);
  EXPECT_EQ(too_long.message(),
            "the request would occupy the device for about 61 s; this engine admits 60 s "
            "(--max-request-time); a kernel that is not quadratic takes less");
  EXPECT_EQ(ReasonFor({.ms = 122'000, .correction = 2}), Reason::kTooLarge) << "by its price, too";
  Admit({.ms = 118'000, .correction = 2});
  admitted_.clear();
  Admit({.ms = 59'000});  // no other waits
  Admit({.ms = 1});       // preempts it
  const absl::Status waits = Refusal({.ms = 20'000});
  EXPECT_EQ(ReasonOf(waits), Reason::kQueueFull);
  EXPECT_EQ(*RetryAfterOf(waits), milliseconds(10'000)) << "57 s, bounded";
  EXPECT_EQ(ledger_->load().saturation, 1);
}

TEST_F(AdmissionTest, ARunningRequestIsWaitedForUnlessItCanBePreempted) {
  Push({.ms = 1000});
  JobList jobs = Next();
  const Runs::Id run = ledger_->BeginRun(jobs, /*preempts=*/false);
  Admit({.ms = 100, .until_ms = 300});  // shorter than a quarter of it
  EXPECT_EQ(ReasonFor({.ms = 300, .until_ms = 1500}), Reason::kDeadlineExceeded);
  clock_->Advance(milliseconds(900));
  ledger_->EndRun(run, /*completed=*/true);
  Admit({.ms = 300, .until_ms = 550});
}

TEST_F(AdmissionTest, TheReserveIsForTenantsBelowTheirShare) {
  const auto of = [](const char* tenant) { return Spec{.cost = {1, 100, 1}, .tenant = tenant}; };
  for (int i = 0; i < 8; ++i) Admit(of("greedy"));
  Admit(of("modest"));
  EXPECT_EQ(ReasonFor(of("greedy")), Reason::kQueueFull) << "one is left, for others";
  Admit(of("modest"));
  EXPECT_EQ(ReasonFor(of("third")), Reason::kQueueFull) << "nothing is left";
}

TEST_F(AdmissionTest, ATenantThatWasRefusedLongAgoMayUseTheReserve) {
  Admit({.cost = {10, 100, 1}, .ms = 1, .tenant = "greedy"});
  const Spec modest{.ms = 1, .tenant = "modest"};
  EXPECT_EQ(ReasonFor(modest), Reason::kQueueFull);
  admitted_.clear();
  clock_->Advance(seconds(10));
  Admit({.cost = {9, 100, 1}, .ms = 1, .tenant = "greedy"});
  Admit(modest);
}

// Invented names do not accumulate.
TEST_F(AdmissionTest, AnyNumberOfTenantsMayComeAndGo) {
  for (int i = 0; i < 20'000; ++i) {
    Admit({.ms = 1, .tenant = std::to_string(i)});
    admitted_.clear();
  }
  EXPECT_EQ(ledger_->load().inflight_requests, 0);
  EXPECT_EQ(ledger_->load().queued_seconds, 0);
}

TEST_F(AdmissionTest, WhatCouldNeverHaveItsDeviceMemoryIsTooLarge) {
  Spec large{.memory = {.own = 600, .shared = 100}};
  Admit(large);
  DeviceBudget& device = ledger_->device_memory();
  device.SetMost(1000);
  ASSERT_TRUE(device.TakeWeights(300));
  Admit(large);
  Admit(large);  // both at a time would not fit: they wait for each other
  ASSERT_TRUE(device.TakeWeights(1));
  const absl::Status refused = Refusal(large);
  EXPECT_EQ(ReasonOf(refused), Reason::kTooLarge);
  EXPECT_EQ(refused.message(),
            "the request would take about 700 bytes of the device's memory while it runs; this "
            "engine has 699 besides its models' weights (--max-device-bytes)");
  large.memory.own = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ReasonFor(large), Reason::kTooLarge);
}

TEST_F(AdmissionTest, WhatDoesNotFitBesideARunIsExpectedToWaitForIt) {
  ledger_->device_memory().SetMost(100);
  Push({.ms = 1000, .memory = {.own = 60}});
  JobList jobs = Next();
  ledger_->BeginRun(jobs, /*preempts=*/false);
  Spec shorter{.ms = 100, .until_ms = 300, .memory = {.own = 41}};  // short enough to preempt
  EXPECT_EQ(ReasonFor(shorter), Reason::kDeadlineExceeded);
  shorter.memory.own = 40;
  Admit(shorter);
}

}  // namespace
}  // namespace castor

#include "engine/jobs/admission.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "tests/unit/scheduling/fake_clock.h"

namespace castor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A request that is predicted to take so long.
Claim Taking(double ms) {
  Claim claim;
  claim.time.own_us = ms * 1e3;
  return claim;
}

class AdmissionTest : public testing::Test {
 protected:
  Claim Until(Claim claim, double ms) {
    claim.deadline = clock_->Now() + std::chrono::microseconds(static_cast<int64_t>(ms * 1e3));
    return claim;
  }

  std::chrono::milliseconds Hint(Claim claim) {
    return *RetryAfterOf(admission_->Reserve(claim).status());
  }

  // Admits it for the rest of the test.
  void Admit(Claim claim) {
    auto reservation = admission_->Reserve(claim);
    ASSERT_TRUE(reservation.ok()) << reservation.status();
    admitted_.push_back(*std::move(reservation));
  }

  Reason ReasonFor(Claim claim) { return ReasonOf(admission_->Reserve(claim).status()); }

  const std::shared_ptr<FakeClock> clock_ = std::make_shared<FakeClock>();
  const std::shared_ptr<Admission> admission_ = std::make_shared<Admission>(
      Budgets{.most = {10, 1000, 100'000}, .queued_time = seconds(2), .request_time = seconds(60)},
      clock_);
  std::vector<Reservation> admitted_;
};

TEST_F(AdmissionTest, BoundsEachBudgetByItself) {
  auto most = admission_->Reserve({{1, 900, 90'000}});
  ASSERT_TRUE(most.ok());
  EXPECT_EQ(ReasonOf(admission_->Reserve({{1, 101, 1}}).status()), Reason::kQueueFull);
  EXPECT_EQ(ReasonOf(admission_->Reserve({{1, 1, 10'001}}).status()), Reason::kQueueFull);
  EXPECT_EQ(ReasonOf(admission_->Reserve({{10, 1, 1}}).status()), Reason::kQueueFull);
  auto rest = admission_->Reserve({{9, 100, 10'000}});
  EXPECT_TRUE(rest.ok());
}

TEST_F(AdmissionTest, TellsTooLargeFromFull) {
  for (Cost cost : {Cost{11, 1, 1}, Cost{1, 1001, 1}, Cost{1, 1, 100'001},
                    Cost{1, std::numeric_limits<int64_t>::max(), 1}}) {
    EXPECT_EQ(ReasonFor({cost}), Reason::kTooLarge);
  }
  EXPECT_EQ(admission_->in_use().requests, 0);
}

TEST_F(AdmissionTest, ReservationsGiveBackOnce) {
  {
    auto first = admission_->Reserve({{1, 500, 500}});
    Reservation moved = *std::move(first);
    Reservation assigned;
    assigned = std::move(moved);
    EXPECT_EQ(admission_->in_use().tokens, 500);
    assigned.Release();
    assigned.Release();
    EXPECT_EQ(admission_->in_use().tokens, 0);
  }
  EXPECT_EQ(admission_->in_use().requests, 0);
  EXPECT_EQ(admission_->in_use().bytes, 0);
}

TEST_F(AdmissionTest, AdjustingReplacesTheEstimate) {
  auto reservation = admission_->Reserve({{1, 800, 80'000}});
  reservation->Adjust(30, 300);
  EXPECT_EQ(admission_->in_use().tokens, 30);
  EXPECT_EQ(admission_->in_use().bytes, 300);
  EXPECT_TRUE(admission_->Reserve({{1, 970, 1}}).ok());
  reservation->Adjust(2000, 300);  // an admitted request is not refused later
  EXPECT_EQ(ReasonOf(admission_->Reserve({{1, 1, 1}}).status()), Reason::kQueueFull);
  reservation->Release();
  EXPECT_EQ(admission_->in_use().tokens, 0);
}

// The part of the queue's predicted time that must be over before there is room.
TEST_F(AdmissionTest, TheHintIsThePredictedTimeUntilThereIsRoom) {
  Claim half = Taking(400);
  half.cost = {1, 500, 1};
  Admit(half);
  Admit(half);
  Claim tenth;
  tenth.cost = {1, 100, 1};
  EXPECT_EQ(Hint(tenth).count(), 81);
  EXPECT_EQ(Hint(half).count(), 401);
  for (Reservation& reservation : admitted_) reservation.LeaveQueue();
  EXPECT_EQ(Hint(half), milliseconds(200)) << "nothing waits: answers hold the room";
}

TEST_F(AdmissionTest, RefusesWhatCannotBeInTime) {
  EXPECT_EQ(ReasonFor(Until(Taking(100), 120)), Reason::kDeadlineExceeded);
  const auto alone = admission_->Reserve(Until(Taking(100), 120));
  EXPECT_FALSE(RetryAfterOf(alone.status())) << "nor later";
  Admit(Until(Taking(100), 130));
  const auto second = admission_->Reserve(Until(Taking(100), 200));
  EXPECT_EQ(ReasonOf(second.status()), Reason::kDeadlineExceeded);
  EXPECT_TRUE(RetryAfterOf(second.status())) << "the queue will be shorter";
  EXPECT_EQ(second.status().message(),
            "the request would take about 100 ms after 100 ms in the queue, and its deadline is in "
            "200 ms");
  Admit(Until(Taking(100), 380));
  admitted_.front().LeaveQueue();
  Admit(Until(Taking(100), 380));
}

TEST_F(AdmissionTest, AWaitHasLessMarginOnceThePaceIsKnown) {
  Admit(Until(Taking(100), 200));
  EXPECT_EQ(ReasonFor(Until(Taking(100), 370)), Reason::kDeadlineExceeded);
  for (int i = 0; i < 100; ++i) {
    const ActiveRuns::Id run = admission_->runs().Begin({.predicted_us = 100e3}, clock_->Now());
    clock_->Advance(milliseconds(100));
    admission_->runs().End(run, clock_->Now());
  }
  EXPECT_EQ(ReasonFor(Until(Taking(100), 270)), Reason::kDeadlineExceeded);
  Admit(Until(Taking(100), 300));
}

// What was learned is unlearned only by running.
TEST_F(AdmissionTest, AnIdleDeviceNowAndThenTriesWhatOnlyPricesLetIn) {
  Claim slow = Taking(100);
  slow.time.correction = 4;
  Admit(Until(slow, 50));
  EXPECT_EQ(ReasonFor(Until(slow, 50)), Reason::kDeadlineExceeded) << "it is not idle";
  admitted_.clear();
  EXPECT_EQ(ReasonFor(Until(slow, 50)), Reason::kDeadlineExceeded) << "so soon";
  clock_->Advance(seconds(1));
  Admit(Until(slow, 50));
}

TEST_F(AdmissionTest, RefusesWhatWouldMakeOthersLate) {
  Admit(Until(Taking(100), 1000));
  Admit(Until(Taking(600), 900));
  // In time itself, ahead of both; with a margin of a quarter the second has 120 ms to spare.
  EXPECT_EQ(ReasonFor(Until(Taking(130), 800)), Reason::kQueueFull);
  Admit(Until(Taking(10), 800));
  Admit(Taking(1000));  // behind them
}

TEST_F(AdmissionTest, ThoseOfALowerPriorityGiveWay) {
  Claim low = Until(Taking(600), 800);
  low.priority = Priority::kLow;
  Admit(low);
  Admit(Until(Taking(600), 800));
}

TEST_F(AdmissionTest, BoundsPredictedTimes) {
  const auto too_long = admission_->Reserve(Taking(61'000));
  EXPECT_EQ(ReasonOf(too_long.status()), Reason::kTooLarge);
  EXPECT_EQ(too_long.status().message(),
            "the request would take about 61 s of the device, this engine admits 60 s "
            "(--max-request-time); a kernel that is not quadratic takes less");
  Admit(Taking(59'000));  // alone, it waits for nobody
  Admit(Taking(1));       // passes it
  const auto waits = admission_->Reserve(Taking(20'000));
  EXPECT_EQ(ReasonOf(waits.status()), Reason::kQueueFull);
  EXPECT_EQ(*RetryAfterOf(waits.status()), milliseconds(10'000)) << "57 s, bounded";
  EXPECT_EQ(admission_->load().saturation, 1);
}

TEST_F(AdmissionTest, ARunningRequestIsWaitedForUnlessItCanBePassed) {
  const ActiveRuns::Id run =
      admission_->runs().Begin({.predicted_us = 1e6, .longest_us = 1e6}, clock_->Now());
  Admit(Until(Taking(100), 300));  // shorter than a quarter of it
  EXPECT_EQ(ReasonFor(Until(Taking(300), 1500)), Reason::kDeadlineExceeded);
  clock_->Advance(milliseconds(900));
  admission_->runs().End(run, clock_->Now());
  Admit(Until(Taking(300), 550));
}

TEST_F(AdmissionTest, TheLastPartIsForTenantsWithLess) {
  const auto of = [](std::string tenant) {
    Claim claim;
    claim.cost = {1, 100, 1};
    claim.tenant = std::move(tenant);
    return claim;
  };
  for (int i = 0; i < 8; ++i) Admit(of("greedy"));
  Admit(of("modest"));
  EXPECT_EQ(ReasonFor(of("greedy")), Reason::kQueueFull) << "one is left, for others";
  Admit(of("modest"));
  EXPECT_EQ(ReasonFor(of("third")), Reason::kQueueFull) << "nothing is left";
}

// It was looked up before those like it were forgotten, and used afterwards.
TEST_F(AdmissionTest, WhoWasRefusedLongAgoMayComeBackWhenLittleIsLeft) {
  Claim greedy = Taking(1);
  greedy.cost = {10, 100, 1};
  greedy.tenant = "greedy";
  Admit(greedy);
  Claim modest = Taking(1);
  modest.tenant = "modest";
  EXPECT_EQ(ReasonFor(modest), Reason::kQueueFull);
  admitted_.clear();
  clock_->Advance(seconds(10));
  greedy.cost = {9, 100, 1};
  Admit(greedy);
  Admit(modest);
}

TEST_F(AdmissionTest, WhatCouldNeverHaveItsDeviceMemoryIsTooLarge) {
  Claim claim;
  claim.memory = {.own = 600, .shared = 100};
  Admit(claim);
  DeviceBudget& device = *admission_->device_memory();
  device.SetMost(1000);
  ASSERT_TRUE(device.TakeWeights(300));
  Admit(claim);
  Admit(claim);  // both at a time would not fit: they wait for each other
  ASSERT_TRUE(device.TakeWeights(1));
  const auto refused = admission_->Reserve(claim);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kTooLarge);
  EXPECT_EQ(refused.status().message(),
            "the request would take about 700 bytes of the device's memory while it runs, this "
            "engine has 699 beside its models (--max-device-bytes)");
  claim.memory.own = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ReasonFor(claim), Reason::kTooLarge);
}

TEST_F(AdmissionTest, WhatDoesNotFitBesideARunIsExpectedToWaitForIt) {
  admission_->device_memory()->SetMost(100);
  admission_->runs().Begin({.predicted_us = 1e6, .longest_us = 1e6, .device_bytes = 60},
                           clock_->Now());
  Claim claim = Until(Taking(100), 300);  // short enough to pass
  claim.memory.own = 41;
  EXPECT_EQ(ReasonFor(claim), Reason::kDeadlineExceeded);
  claim.memory.own = 40;
  Admit(claim);
}

}  // namespace
}  // namespace castor

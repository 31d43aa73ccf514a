#include "engine/jobs/admission.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "tests/unit/scheduling/fake_clock.h"

namespace castor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AdmissionTest : public testing::Test {
 protected:
  std::chrono::milliseconds Hint(Cost cost) {
    return *RetryAfterOf(admission_->Reserve(cost).status());
  }

  void Finish(Cost cost) {
    auto reservation = admission_->Reserve(cost);
    ASSERT_TRUE(reservation.ok()) << reservation.status();
    reservation->CountAsFinished();
  }

  const std::shared_ptr<FakeClock> clock_ = std::make_shared<FakeClock>();
  const std::shared_ptr<Admission> admission_ =
      std::make_shared<Admission>(Cost{10, 1000, 100'000}, clock_);
};

TEST_F(AdmissionTest, BoundsEachBudgetByItself) {
  auto most = admission_->Reserve({1, 900, 90'000});
  ASSERT_TRUE(most.ok());
  EXPECT_EQ(ReasonOf(admission_->Reserve({1, 101, 1}).status()), Reason::kQueueFull);
  EXPECT_EQ(ReasonOf(admission_->Reserve({1, 1, 10'001}).status()), Reason::kQueueFull);
  EXPECT_EQ(ReasonOf(admission_->Reserve({10, 1, 1}).status()), Reason::kQueueFull);
  auto rest = admission_->Reserve({9, 100, 10'000});
  EXPECT_TRUE(rest.ok());
}

TEST_F(AdmissionTest, TellsTooLargeFromFull) {
  for (Cost cost : {Cost{11, 1, 1}, Cost{1, 1001, 1}, Cost{1, 1, 100'001},
                    Cost{1, std::numeric_limits<int64_t>::max(), 1}}) {
    EXPECT_EQ(ReasonOf(admission_->Reserve(cost).status()), Reason::kTooLarge);
  }
  EXPECT_EQ(admission_->in_use().requests, 0);
}

TEST_F(AdmissionTest, ReservationsGiveBackOnce) {
  {
    auto first = admission_->Reserve({1, 500, 500});
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
  auto reservation = admission_->Reserve({1, 800, 80'000});
  reservation->Adjust(30, 300);
  EXPECT_EQ(admission_->in_use().tokens, 30);
  EXPECT_EQ(admission_->in_use().bytes, 300);
  EXPECT_TRUE(admission_->Reserve({1, 970, 1}).ok());
  reservation->Adjust(2000, 300);  // an admitted request is not refused later
  EXPECT_EQ(ReasonOf(admission_->Reserve({1, 1, 1}).status()), Reason::kQueueFull);
  reservation->Release();
  EXPECT_EQ(admission_->in_use().tokens, 0);
}

TEST_F(AdmissionTest, HintFollowsTheRecentPace) {
  auto all = admission_->Reserve({1, 1000, 1});
  EXPECT_EQ(Hint({1, 100, 1}), milliseconds(200));  // nothing has finished yet

  // 100 tokens every 10 ms, until the average has settled: 10,000 a second.
  all->Release();
  for (int i = 0; i < 2000; ++i) {
    clock_->Advance(milliseconds(10));
    Finish({1, 100, 1});
  }
  auto again = admission_->Reserve({1, 1000, 1});
  const milliseconds hundred = Hint({1, 100, 1});  // 10 ms
  const milliseconds all_of_it = Hint({1, 1000, 1});
  EXPECT_GE(hundred, milliseconds(8));
  EXPECT_LE(hundred, milliseconds(12));
  EXPECT_GE(all_of_it, milliseconds(90));
  EXPECT_LE(all_of_it, milliseconds(110));

  clock_->Advance(seconds(8));  // nothing has finished since, so the pace is forgotten
  EXPECT_GT(Hint({1, 100, 1}), hundred * 20);
  clock_->Advance(seconds(600));
  EXPECT_LE(Hint({1, 100, 1}), milliseconds(10'000));
}

// A flood of requests that fail during staging returns its share as fast as it takes it. If
// failures counted, a refused caller would be told to retry at once, into the same full queue.
TEST_F(AdmissionTest, HintIsNotMisledByWhatFailed) {
  for (int i = 0; i < 200; ++i) {
    clock_->Advance(milliseconds(10));
    Finish({1, 100, 1});
  }
  auto all = admission_->Reserve({1, 900, 1});
  const milliseconds hint = Hint({1, 200, 1});
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(admission_->Reserve({1, 100, 1}).ok());
  EXPECT_EQ(Hint({1, 200, 1}), hint);
}

TEST_F(AdmissionTest, FinishedWorkCountsOnceAndWithWhatItTook) {
  auto estimated = admission_->Reserve({1, 900, 1});
  estimated->Adjust(20, 1);
  estimated->CountAsFinished();
  Reservation moved = *std::move(estimated);
  moved.Release();
  moved.Release();
  auto all = admission_->Reserve({1, 1000, 1});
  // 20 tokens in a window of 2 s are 10 per second.
  const milliseconds hint = Hint({1, 10, 1});
  EXPECT_GE(hint, milliseconds(900));
  EXPECT_LE(hint, milliseconds(1100));
}

}  // namespace
}  // namespace castor

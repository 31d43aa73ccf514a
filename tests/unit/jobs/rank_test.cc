// The order among requests of one tenant.
#include "engine/jobs/rank.h"

#include <gtest/gtest.h>

#include <chrono>

namespace castor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kArrival = TimePoint(seconds(1000));

Rank RankAt(seconds after, Priority priority = Priority::kNormal, Ticket sequence = 1) {
  return RankOf(priority, std::nullopt, kArrival + after, sequence);
}
Rank RankBy(milliseconds deadline, Priority priority = Priority::kNormal, Ticket sequence = 1) {
  return RankOf(priority, kArrival + deadline, kArrival, sequence);
}

TEST(RankTest, AHigherPriorityIsFirst) {
  EXPECT_LT(RankAt(seconds(0), Priority::kHigh, 3), RankAt(seconds(0), Priority::kNormal, 2));
  EXPECT_LT(RankAt(seconds(0), Priority::kNormal, 2), RankAt(seconds(0), Priority::kLow, 1));
  // Whatever its deadline: the head start is longer than anyone's patience.
  EXPECT_LT(RankBy(seconds(60), Priority::kHigh), RankBy(milliseconds(1), Priority::kNormal));
  EXPECT_LT(RankBy(seconds(60), Priority::kNormal), RankBy(milliseconds(1), Priority::kLow));
}

TEST(RankTest, WithinAPriorityTheEarliestDeadlineIsFirst) {
  for (const Priority priority : {Priority::kLow, Priority::kNormal, Priority::kHigh}) {
    EXPECT_LT(RankBy(seconds(1), priority, 2), RankBy(seconds(2), priority, 1));
    EXPECT_LT(RankBy(seconds(2), priority, 2), RankAt(seconds(0), priority, 1));
  }
  // By the deadline itself, not by the time that it leaves.
  EXPECT_LT(RankOf(Priority::kNormal, kArrival + seconds(3), kArrival, 1),
            RankOf(Priority::kNormal, kArrival + milliseconds(3001), kArrival + seconds(3), 2));
}

TEST(RankTest, TheFirstToArriveIsFirstAmongEquals) {
  EXPECT_LT(RankAt(seconds(0), Priority::kNormal, 1), RankAt(seconds(0), Priority::kNormal, 2));
  EXPECT_LT(RankAt(seconds(0), Priority::kNormal, 2), RankAt(seconds(1), Priority::kNormal, 1));
}

TEST(RankTest, NobodyIsMorePatientThanTheOthers) {
  EXPECT_EQ(RankBy(kPatience), RankAt(seconds(0)));
  EXPECT_EQ(RankBy(std::chrono::hours(1)), RankAt(seconds(0))) << "a distant deadline is none";
  EXPECT_LT(RankBy(kPatience - milliseconds(1)), RankAt(seconds(0)));
  // So urgent requests that keep coming do not starve it.
  const TimePoint later = kArrival + kPatience;
  EXPECT_LT(RankAt(seconds(0), Priority::kNormal, 1),
            RankOf(Priority::kNormal, later + milliseconds(1), later, 2));
}

TEST(RankTest, ALowPriorityAges) {
  const Rank low = RankAt(seconds(0), Priority::kLow, 1);
  EXPECT_LT(RankAt(seconds(9), Priority::kNormal, 2), low);
  EXPECT_LT(low, RankAt(seconds(11), Priority::kNormal, 2));
  EXPECT_LT(low, RankAt(kHeadStart, Priority::kNormal, 2)) << "it came first";
  EXPECT_LT(RankAt(seconds(19), Priority::kHigh, 2), low);
  EXPECT_LT(low, RankAt(seconds(21), Priority::kHigh, 2));
}

TEST(RankTest, AnExpiredDeadlineIsFirst) {
  EXPECT_LT(RankBy(-seconds(1)), RankBy(milliseconds(0)));
  EXPECT_EQ(RankBy(-seconds(1), Priority::kHigh).due, kArrival - seconds(1));
}

}  // namespace
}  // namespace castor

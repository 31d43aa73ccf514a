#include "server/lifecycle/watchdog.h"

#include <gtest/gtest.h>

#include <chrono>

namespace castor::server {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

class StallMeterTest : public testing::Test {
 protected:
  // A look at this progress, `later` after the last one.
  bool LookAfter(seconds later, Progress progress) {
    return meter_.Update(progress, now_ += later);
  }

  TimePoint now_{hours(1)};
  StallMeter meter_{seconds(60), /*most_per_look=*/seconds(10)};
};

TEST_F(StallMeterTest, WorkWithoutProgressIsAStallAfterTheLimit) {
  for (int look = 0; look <= 11; ++look) EXPECT_FALSE(LookAfter(seconds(5), {true, 7})) << look;
  EXPECT_TRUE(LookAfter(seconds(5), {true, 7}));
  EXPECT_TRUE(LookAfter(seconds(5), {true, 7}));
}

TEST_F(StallMeterTest, ALongBatchThatBeatsIsNone) {
  for (uint64_t look = 0; look < 1000; ++look) {
    EXPECT_FALSE(LookAfter(seconds(5), {true, look / 11})) << look;
  }
}

TEST_F(StallMeterTest, AnIdleEngineIsAlive) {
  for (int look = 0; look < 1000; ++look) EXPECT_FALSE(LookAfter(seconds(5), {false, 7}));
}

TEST_F(StallMeterTest, ProgressEndsAStall) {
  for (int look = 0; look < 20; ++look) LookAfter(seconds(5), {true, 7});
  EXPECT_FALSE(LookAfter(seconds(5), {true, 8}));
  for (int look = 0; look < 11; ++look) EXPECT_FALSE(LookAfter(seconds(5), {true, 8}));
  EXPECT_TRUE(LookAfter(seconds(5), {true, 8}));
}

// As after SIGSTOP, or on a machine that was suspended.
TEST_F(StallMeterTest, AProcessThatStoodStillDoesNotBlameItsEngine) {
  LookAfter(seconds(5), {true, 7});
  EXPECT_FALSE(LookAfter(hours(1), {true, 7}));
  EXPECT_FALSE(LookAfter(seconds(5), {true, 7}));
}

}  // namespace
}  // namespace castor::server

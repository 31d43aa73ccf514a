#include "server/lifecycle.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "server/services/call.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

TEST(LifecycleTest, RefusesFromTheMomentItIsTold) {
  Lifecycle lifecycle;
  EXPECT_TRUE(lifecycle.EnterCall());
  lifecycle.BeginRefusing();
  EXPECT_FALSE(lifecycle.EnterCall());
  EXPECT_EQ(lifecycle.calls_in_flight(), 2);  // refused calls have answers to send too
}

TEST(LifecycleTest, IdleWhenTheLastCallHasLeft) {
  Lifecycle lifecycle;
  lifecycle.EnterCall();
  EXPECT_FALSE(lifecycle.WaitUntilIdle(steady_clock::now()));
  std::thread leaver([&] { lifecycle.LeaveCall(); });
  EXPECT_TRUE(lifecycle.WaitUntilIdle(steady_clock::now() + seconds(20)));
  leaver.join();
}

TEST(LifecycleTest, FirstCauseToStopStands) {
  Lifecycle lifecycle;
  std::thread stopper([&] {
    lifecycle.RequestStop(StopCause::kEngineFault);
    lifecycle.RequestStop(StopCause::kRequested);
  });
  EXPECT_EQ(lifecycle.WaitForStop(), StopCause::kEngineFault);
  stopper.join();
  EXPECT_EQ(lifecycle.WaitForStop(), StopCause::kEngineFault);
}

// One moment on both clocks, odd to the nanosecond: whatever rounds shows.
constexpr system_clock::time_point kSystemNow{nanoseconds(1'790'000'000'123'456'789)};
constexpr steady_clock::time_point kNow{nanoseconds(77'000'000'001)};

TEST(DeadlineTest, KeepsWhatTheCallerAsksToTheNanosecond) {
  for (const nanoseconds left : {nanoseconds(0), nanoseconds(1), nanoseconds(5'000'000'003),
                                 nanoseconds(59'999'999'999), nanoseconds(60'000'000'000)}) {
    EXPECT_EQ(DeadlineOf(kSystemNow + left, seconds(60), kSystemNow, kNow), kNow + left);
  }
}

TEST(DeadlineTest, CapsWhatTheCallerAsks) {
  for (const auto later : {kSystemNow + seconds(60) + nanoseconds(1), kSystemNow + seconds(500),
                           system_clock::time_point::max()}) {
    EXPECT_EQ(DeadlineOf(later, seconds(60), kSystemNow, kNow), kNow + seconds(60));
  }
}

TEST(DeadlineTest, APastDeadlineIsPast) {
  EXPECT_EQ(DeadlineOf(kSystemNow - milliseconds(10), seconds(60), kSystemNow, kNow),
            kNow - milliseconds(10));
  EXPECT_EQ(DeadlineOf(system_clock::time_point::min(), seconds(60), kSystemNow, kNow),
            kNow - seconds(60));
}

}  // namespace
}  // namespace castor::server

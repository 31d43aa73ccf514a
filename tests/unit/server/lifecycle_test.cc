#include "server/lifecycle.h"

#include <gtest/gtest.h>

#include <thread>

#include "server/services/call.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
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

TEST(DeadlineTest, CapsWhatTheCallerAsks) {
  const auto before = steady_clock::now();
  const auto asked = DeadlineOf(system_clock::now() + seconds(5), seconds(60));
  EXPECT_GT(asked, before + seconds(4));
  EXPECT_LT(asked, steady_clock::now() + seconds(6));
  for (const auto later : {system_clock::now() + seconds(500), system_clock::time_point::max()}) {
    const auto capped = DeadlineOf(later, seconds(60));
    EXPECT_GT(capped, before + seconds(59));
    EXPECT_LE(capped, steady_clock::now() + seconds(60));
  }
}

TEST(DeadlineTest, APastDeadlineIsPast) {
  EXPECT_LT(DeadlineOf(system_clock::now() - milliseconds(10), seconds(60)), steady_clock::now());
}

}  // namespace
}  // namespace castor::server

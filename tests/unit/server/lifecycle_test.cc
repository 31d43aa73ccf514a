#include "server/lifecycle/lifecycle.h"

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

// A caller sends its next call once it has its answer; that call must still find the server there.
TEST(LifecycleTest, QuietOnlyWhenNoCallHasComeOrGoneForAWhile) {
  Lifecycle lifecycle;
  lifecycle.EnterCall();
  lifecycle.LeaveCall();
  const auto left = steady_clock::now();
  EXPECT_FALSE(lifecycle.WaitUntilQuiet(seconds(20), left + milliseconds(1)));
  EXPECT_TRUE(lifecycle.WaitUntilQuiet(milliseconds(20), left + seconds(20)));
  EXPECT_GE(steady_clock::now() - left, milliseconds(20));
}

// The same moment on both clocks, with odd nanoseconds so that any rounding is noticed.
constexpr gpr_timespec kGrpcNow{1'790'000'000, 123'456'789, GPR_CLOCK_REALTIME};
constexpr steady_clock::time_point kNow{nanoseconds(77'000'000'001)};

gpr_timespec After(nanoseconds left) {
  return gpr_time_add(kGrpcNow, gpr_time_from_nanos(left.count(), GPR_TIMESPAN));
}

TEST(DeadlineTest, KeepsWhatTheCallerAsksToTheNanosecond) {
  for (const nanoseconds left : {nanoseconds(0), nanoseconds(1), nanoseconds(5'000'000'003),
                                 nanoseconds(59'999'999'999), nanoseconds(60'000'000'000)}) {
    EXPECT_EQ(DeadlineOf(After(left), seconds(60), kGrpcNow, kNow), kNow + left);
  }
}

TEST(DeadlineTest, CapsWhatTheCallerAsks) {
  // The wire's maximum is 99999999 hours, which overflows a nanosecond clock.
  const gpr_timespec largest{kGrpcNow.tv_sec + int64_t{99'999'999} * 3600, 0, GPR_CLOCK_REALTIME};
  for (const gpr_timespec later : {After(seconds(60) + nanoseconds(1)), After(seconds(500)),
                                   largest, gpr_inf_future(GPR_CLOCK_REALTIME)}) {
    EXPECT_EQ(DeadlineOf(later, seconds(60), kGrpcNow, kNow), kNow + seconds(60));
  }
}

TEST(DeadlineTest, APastDeadlineIsPast) {
  EXPECT_EQ(DeadlineOf(After(milliseconds(-10)), seconds(60), kGrpcNow, kNow),
            kNow - milliseconds(10));
  EXPECT_EQ(DeadlineOf(gpr_inf_past(GPR_CLOCK_REALTIME), seconds(60), kGrpcNow, kNow),
            kNow - seconds(60));
}

}  // namespace
}  // namespace castor::server

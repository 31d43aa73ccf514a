#include "server/lifecycle/lifecycle.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <latch>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

#include "server/lifecycle/heap_trimmer.h"
#include "server/lifecycle/periodic.h"
#include "server/lifecycle/signals.h"
#include "server/lifecycle/watchdog.h"
#include "server/services/call.h"

namespace castor::server {
namespace {

using std::chrono::hours;
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

TEST(IdlenessTest, IsToldOnceByProcessorTimeAlone) {
  Idleness idleness;
  double cpu = 7;  // the start's
  const auto looks_until_told = [&](double each) {
    for (int look = 1; look <= 10 * Idleness::kLooks; ++look) {
      if (idleness.Update(cpu += each)) return look;
    }
    return 0;
  };
  EXPECT_EQ(looks_until_told(0.5), 0) << "a quarter of a core";
  EXPECT_EQ(looks_until_told(0.01), Idleness::kLooks) << "scrapes and health checks";
  EXPECT_EQ(looks_until_told(0.01), 0) << "all is given back already";
  for (int look = 0; look < 10; ++look) {  // never long enough
    EXPECT_FALSE(idleness.Update(cpu += 0.5));
    for (int idle = 0; idle + 1 < Idleness::kLooks; ++idle) EXPECT_FALSE(idleness.Update(cpu));
  }
  EXPECT_TRUE(idleness.Update(cpu));
}

TEST(PeriodicTest, EachTaskHasItsOwnPaceOnTheSameThread) {
  Periodic periodic;
  std::latch five(5), three(3);
  std::thread::id threads[2];
  int quick_calls = 0, slow_calls = 0;
  const Periodic::Task never(periodic, hours(1), []() -> Periodic::Duration { std::abort(); });
  {
    const Periodic::Task quick(periodic, milliseconds(0), [&]() -> Periodic::Duration {
      threads[0] = std::this_thread::get_id();
      if (++quick_calls <= 5) five.count_down();
      return milliseconds(1);
    });
    const Periodic::Task slow(periodic, milliseconds(2), [&]() -> Periodic::Duration {
      threads[1] = std::this_thread::get_id();
      if (++slow_calls <= 3) three.count_down();
      return milliseconds(2);
    });
    five.wait();
    three.wait();
  }
  EXPECT_EQ(threads[0], threads[1]);
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

// What the work uses may go away behind its task.
TEST(PeriodicTest, TheEndOfATaskWaitsForItsWork) {
  Periodic periodic;
  for (int i = 0; i < 50; ++i) {
    auto alive = std::make_unique<std::atomic<int>>(0);
    std::latch begun(1);
    std::optional<Periodic::Task> task(std::in_place, periodic, milliseconds(0),
                                       [&]() -> Periodic::Duration {
                                         if (alive->fetch_add(1) == 0) begun.count_down();
                                         std::this_thread::yield();
                                         alive->fetch_add(1);
                                         return milliseconds(0);
                                       });
    begun.wait();
    task.reset();
    EXPECT_EQ(*alive % 2, 0) << "between two calls";
    alive.reset();
  }
}

TEST(PeriodicTest, OthersComeAndGoWhileOneWorks) {
  Periodic periodic;
  std::latch working(1), done(1);
  const Periodic::Task slow(periodic, milliseconds(0), [&]() -> Periodic::Duration {
    working.count_down();
    done.wait();
    return hours(1);
  });
  working.wait();
  {
    const Periodic::Task gone(periodic, milliseconds(0),
                              []() -> Periodic::Duration { std::abort(); });
  }
  std::latch called(1);
  const Periodic::Task next(periodic, milliseconds(0), [&]() -> Periodic::Duration {
    called.count_down();
    return hours(1);
  });
  done.count_down();
  called.wait();
}

template <typename Exception>
void Throw(const Exception& exception) {
  throw exception;
}

// Like a function of the engine that must not fail.
template <typename Exception>
void Fail(const Exception& exception) noexcept {
  Throw(exception);
}

TEST(TerminateDeathTest, SaysInOneLineThatMemoryIsOutAndAborts) {
  EXPECT_EXIT((SayWhyOnTerminate(), Fail(std::bad_alloc())), testing::KilledBySignal(SIGABRT),
              "^castor-server: fatal: out of memory\n$");
}

TEST(TerminateDeathTest, SaysWhatAnExceptionSays) {
  EXPECT_EXIT((SayWhyOnTerminate(), Fail(std::runtime_error("no threads left\nand more"))),
              testing::KilledBySignal(SIGABRT), "^castor-server: fatal: no threads left\n$");
  EXPECT_EXIT((SayWhyOnTerminate(), Fail(7)), testing::KilledBySignal(SIGABRT),
              "^castor-server: fatal: an unknown exception\n$");
}

TEST(TerminateDeathTest, NeedsNoException) {
  EXPECT_EXIT((SayWhyOnTerminate(), std::terminate()), testing::KilledBySignal(SIGABRT),
              "^castor-server: fatal: ");
}

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

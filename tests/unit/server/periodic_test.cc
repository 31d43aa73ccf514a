#include "server/lifecycle/periodic.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <thread>

namespace castor::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

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

}  // namespace
}  // namespace castor::server

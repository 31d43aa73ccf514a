#include "engine/attention/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "engine/base/heartbeat.h"

namespace castor::attention {
namespace {

constexpr double kLarge = 1e9;  // enough to wake threads for

TEST(ParallelForTest, BeatsAsTasksAreDone) {
  Heartbeat heartbeat;
  const BoundHeartbeat bound(heartbeat);
  std::atomic<uint64_t> done_by_first = 0;
  std::atomic<uint64_t> done = 0;
  ParallelFor(1000, kLarge, [&](int worker, int64_t) {
    if (worker == 0) ++done_by_first;
    ++done;
  });
  EXPECT_EQ(done, 1000U);
  EXPECT_EQ(heartbeat.Read().beats, 1 + done_by_first);
}

// Kernels of many small stages are alive as well.
TEST(ParallelForTest, BeatsOnceForAJobTooSmallToShare) {
  Heartbeat heartbeat;
  const BoundHeartbeat bound(heartbeat);
  ParallelFor(10, /*flops=*/1, [](int, int64_t) {});
  EXPECT_EQ(heartbeat.Read().beats, 1U);
}

TEST(ParallelForTest, NeedsNoHeartbeat) {
  std::atomic<int> done = 0;
  ParallelFor(100, kLarge, [&](int, int64_t) { ++done; });
  EXPECT_EQ(done, 100);
}

}  // namespace
}  // namespace castor::attention

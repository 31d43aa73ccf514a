#include <gtest/gtest.h>

#include <thread>

#include "engine/base/run_control.h"

namespace castor {
namespace {

TEST(HeartbeatTest, RisesWithEachBeatAndChange) {
  Heartbeat heartbeat;
  EXPECT_FALSE(heartbeat.Read().busy);
  EXPECT_EQ(heartbeat.Read().beats, 0U);
  heartbeat.SetBusy(true);
  EXPECT_TRUE(heartbeat.Read().busy);
  EXPECT_EQ(heartbeat.Read().beats, 1U);
  heartbeat.Beat();
  EXPECT_TRUE(heartbeat.Read().busy);
  EXPECT_EQ(heartbeat.Read().beats, 2U);
  heartbeat.SetBusy(false);
  EXPECT_FALSE(heartbeat.Read().busy);
  EXPECT_EQ(heartbeat.Read().beats, 3U);
}

TEST(HeartbeatTest, BelongsToTheThreadThatBoundIt) {
  BeatHere();  // no heartbeat is bound
  Heartbeat heartbeat;
  {
    const BoundHeartbeat bound(heartbeat);
    BeatHere();
    std::thread(BeatHere).join();
  }
  BeatHere();
  EXPECT_EQ(heartbeat.Read().beats, 1U);
}

}  // namespace
}  // namespace castor

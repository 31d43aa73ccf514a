#include "engine/base/run_control.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/checkpoints.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

TEST(RunControlTest, IsDueAfterItsInterval) {
  class Control : public RunControl {
   public:
    Control() : RunControl(std::chrono::milliseconds(2)) {}
    int asked = 0;
    bool wanted = false;

   private:
    bool WantsCheckpoint() override {
      ++asked;
      return wanted;
    }
    absl::Status AtCheckpoint() override { return absl::AbortedError("ended"); }
  };
  const auto begin = steady_clock::now();
  Control control;
  while (control.asked == 0) {
    EXPECT_FALSE(control.Due()) << "there is nothing to do";
  }
  EXPECT_GE(steady_clock::now() - begin, std::chrono::milliseconds(2));
  EXPECT_FALSE(control.Due());
  EXPECT_EQ(control.asked, 1) << "asked again before another interval has passed";
  control.wanted = true;
  while (!control.Due()) {
  }
  EXPECT_EQ(control.asked, 2);
  EXPECT_EQ(control.Pause(), absl::AbortedError("ended"));
}

TEST(RunControlTest, CountsTheTimeOfItsPauses) {
  AtEvery control([] {
    const auto end = steady_clock::now() + std::chrono::milliseconds(3);
    while (steady_clock::now() < end) {
    }
    return absl::OkStatus();
  });
  EXPECT_EQ(control.paused(), RunControl::Duration::zero());
  EXPECT_TRUE(control.Checkpoint().ok());
  EXPECT_TRUE(control.Checkpoint().ok());
  EXPECT_GE(control.paused(), std::chrono::milliseconds(6));
  EXPECT_EQ(control.count(), 2);
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

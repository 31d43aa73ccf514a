#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/run_control.h"
#include "engine/base/team.h"
#include "tests/support/checkpoints.h"
#include "tests/support/sanitizer.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

TEST(TeamTest, TheOwnerWorksAndHelpersAtMostOnceEach) {
  Team team(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::atomic<int>> calls(4);
    team.Run(4, [&](int thread) { ++calls[thread]; });
    EXPECT_EQ(calls[0], 1);
    for (const auto& times : calls) EXPECT_LE(times, 1);
  }
}

TEST(TeamTest, HelpersCome) {
  Team team(1);
  std::atomic<bool> came = false;
  team.Run(2, [&](int thread) {
    if (thread == 1) came = true;
    while (!came) std::this_thread::yield();
  });
  EXPECT_TRUE(came);
}

// Including helpers that sleep, or are about to.
TEST(TeamTest, HelpersComeAfterAPause) {
  Team team(1);
  for (int round = 0; round < 50; ++round) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20 * (round % 8));
    while (std::chrono::steady_clock::now() < end) {
    }
    std::atomic<bool> came = false;
    team.Run(2, [&](int thread) {
      if (thread == 1) came = true;
      while (!came) std::this_thread::yield();
    });
  }
}

TEST(TeamTest, NoHelperWorksWhenARoundReturns) {
  Team team(3);
  int64_t sum = 0;  // not atomic: the owner reads what helpers wrote
  std::vector<int64_t> parts(4);
  for (int64_t round = 0; round < 2000; ++round) {
    std::atomic<int64_t> next = 0;
    team.Run(4, [&](int thread) {
      while (next++ < 8) ++parts[thread];
    });
    for (int64_t& part : parts) sum += std::exchange(part, 0);
    EXPECT_EQ(sum, 8 * (round + 1));
  }
}

TEST(TeamTest, ARoundForFewerThreadsLeavesOthersOut) {
  Team team(3);
  for (int round = 0; round < 500; ++round) {
    std::atomic<bool> out_of_range = false;
    team.Run(1 + round % 3, [&](int thread) {
      if (thread > round % 3) out_of_range = true;
    });
    EXPECT_FALSE(out_of_range);
  }
}

TEST(TeamTest, WithoutHelpersTheOwnerWorksAlone) {
  Team team(0);
  int calls = 0;
  team.Run(4, [&](int thread) {
    EXPECT_EQ(thread, 0);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(TeamTest, EndsWithoutARound) { const Team team(4); }

TEST(CheckThreadsTest, FindsRoomForAFew) {
  EXPECT_TRUE(CheckThreads(0).ok());
  EXPECT_TRUE(CheckThreads(20).ok());
}

[[noreturn]] void ExitWithoutRoom() {
  const rlimit limit{rlim_t{200} << 20, RLIM_INFINITY};  // room for few stacks of 8 MiB
  setrlimit(RLIMIT_AS, &limit);
  const absl::Status status = CheckThreads(1000);
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::_Exit(status.ok() ? 0 : 1);
}

TEST(CheckThreadsDeathTest, SaysWhyThereIsNone) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory exceeds such a limit";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitWithoutRoom(), testing::ExitedWithCode(1), "cannot start 1000 threads, only ");
}

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

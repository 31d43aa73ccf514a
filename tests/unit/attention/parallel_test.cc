#include "engine/attention/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "engine/base/run_control.h"
#include "tests/support/checkpoints.h"

namespace castor::attention {
namespace {

constexpr double kLarge = 1e9;  // enough work to wake threads for

class ParallelForTest : public testing::Test {
 protected:
  ~ParallelForTest() override { SetParallelWorkers(threads_); }

  const int threads_ = ParallelWorkers();
};

TEST_F(ParallelForTest, BeatsAsTasksAreDone) {
  Heartbeat heartbeat;
  const BoundHeartbeat bound(heartbeat);
  std::atomic<uint64_t> done_by_first = 0;
  std::atomic<uint64_t> done = 0;
  EXPECT_TRUE(ParallelFor(1000, kLarge, RunToEnd(), [&](int worker, int64_t) {
                if (worker == 0) ++done_by_first;
                ++done;
              }).ok());
  EXPECT_EQ(done, 1000U);
  EXPECT_EQ(heartbeat.Read().beats, 1 + done_by_first);
}

// Kernels made of many small stages must beat too.
TEST_F(ParallelForTest, BeatsOnceForAJobTooSmallToShare) {
  Heartbeat heartbeat;
  const BoundHeartbeat bound(heartbeat);
  EXPECT_TRUE(ParallelFor(10, /*flops=*/1, RunToEnd(), [](int, int64_t) {}).ok());
  EXPECT_EQ(heartbeat.Read().beats, 1U);
}

// The number of checkpoints depends on the first of several threads, which may start late.
TEST_F(ParallelForTest, CheckpointsComeWhileNoTaskRunsAndLoseNone) {
  for (const int threads : {1, 3}) {
    SetParallelWorkers(threads);
    std::atomic<int> running = 0;
    std::vector<std::atomic<int>> done(500);
    AtEvery control([&] {
      EXPECT_EQ(running, 0);
      return absl::OkStatus();
    });
    EXPECT_TRUE(ParallelFor(500, /*flops=*/500 * kStepOperations, control, [&](int, int64_t task) {
                  ++running;
                  ++done[task];
                  --running;
                }).ok());
    for (const auto& times : done) EXPECT_EQ(times, 1);
    EXPECT_TRUE(threads == 1 ? control.count() == 501 : control.count() >= 1) << control.count();
  }
}

TEST_F(ParallelForTest, AnEndedRunStopsAndSaysWhy) {
  for (const int threads : {1, 3}) {
    SetParallelWorkers(threads);
    AtEvery control([] { return absl::AbortedError("enough"); });
    std::atomic<int> done = 0;
    const absl::Status status =
        ParallelFor(1000, 1000 * kStepOperations, control, [&](int, int64_t) { ++done; });
    EXPECT_EQ(status, absl::AbortedError("enough"));
    EXPECT_EQ(control.count(), 1);
    EXPECT_TRUE(threads > 1 || done == 1) << done;
  }
}

void ExpectKeptTasks(int threads) {
  SetParallelWorkers(threads);
  constexpr int64_t kSteps = 20;
  struct alignas(64) CurrentTask {
    int64_t task = -1;
    int64_t step = 0;
  };
  std::vector<CurrentTask> workers(3);
  std::vector<std::atomic<int>> ended(50);
  AtEvery control;
  const absl::Status status =
      ParallelSteps(50, kLarge, control, [&](int worker, int64_t task, int64_t step) {
        auto& [mine, next] = workers[worker];
        if (step == 0) mine = task, next = 0;
        EXPECT_EQ(mine, task);
        EXPECT_EQ(next++, step);
        if (step < kSteps - 1) return true;
        ++ended[task];
        return false;
      });
  EXPECT_TRUE(status.ok());
  for (const auto& times : ended) EXPECT_EQ(times, 1);
  EXPECT_TRUE(threads == 1 ? control.count() >= 50 * kSteps - 50 : control.count() >= 1);
}

// Data of a task in a worker's scratch area is still there when the task continues.
TEST_F(ParallelForTest, AWorkerKeepsItsTaskOverCheckpoints) {
  for (const int threads : {1, 3}) ExpectKeptTasks(threads);
}

// However tasks are distributed, the thread that is asked for checkpoints is never out of work for
// long while others have some.
TEST_F(ParallelForTest, ALongTaskOfAnotherThreadIsHandedOver) {
  SetParallelWorkers(2);
  const auto engine_thread = std::this_thread::get_id();
  std::atomic<bool> taken_by_other = false;
  std::atomic<int> steps_here = 0;
  AtEvery control;
  const absl::Status status = ParallelSteps(2, kLarge, control, [&](int, int64_t, int64_t step) {
    if (std::this_thread::get_id() == engine_thread) return ++steps_here < 10 && step > 0;
    taken_by_other = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
    while (std::chrono::steady_clock::now() < end) {
    }
    return steps_here < 10 && step < 200'000;
  });
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(!taken_by_other || steps_here >= 10) << steps_here;
}

TEST_F(ParallelForTest, AnotherRunMayHappenAtACheckpoint) {
  SetParallelWorkers(3);
  std::atomic<int> outer = 0;
  std::atomic<int> inner = 0;
  AtEvery control([&] {
    const int before = inner;
    EXPECT_TRUE(ParallelFor(7, kLarge, RunToEnd(), [&](int, int64_t) { ++inner; }).ok());
    EXPECT_EQ(inner, before + 7);
    return absl::OkStatus();
  });
  EXPECT_TRUE(ParallelFor(50, 50 * kStepOperations, control, [&](int, int64_t) { ++outer; }).ok());
  EXPECT_EQ(outer, 50);
  EXPECT_EQ(inner, 7 * control.count());
  EXPECT_EQ(ParallelWorkers(), 3);
}

// Passes that are alternately ordered and unordered.
class CountingPasses final : public kernels::Passes {
 public:
  CountingPasses() { pass_ = {.tasks = 10, .operations = 10 * kStepOperations, .ordered = true}; }

  void Do(int64_t task) override {
    const int64_t before = done_++;
    EXPECT_TRUE(!pass_.ordered || before == task);
  }
  void Next() override {
    EXPECT_EQ(done_.exchange(0), pass_.tasks);
    ++passes_;
    pass_.ordered = !pass_.ordered;
    if (passes_ == 5) pass_ = Pass();
  }

  int passes() const { return passes_; }

 private:
  std::atomic<int64_t> done_ = 0;
  int passes_ = 0;
};

TEST_F(ParallelForTest, RunsPassesToTheirEnd) {
  SetParallelWorkers(3);
  CountingPasses together;
  AtEvery control;
  EXPECT_TRUE(RunPasses(together, control).ok());
  EXPECT_EQ(together.passes(), 5);
  EXPECT_GE(control.count(), 3 * 10 + 2) << "at every ordered task, and at the end of the others";

  CountingPasses alone;
  int64_t at = 0;
  int steps = 1;
  for (; StepThrough(alone, &at); ++steps) {
  }
  EXPECT_EQ(alone.passes(), 5);
  EXPECT_EQ(steps, 50);
}

}  // namespace
}  // namespace castor::attention

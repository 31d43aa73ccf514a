// Failures of the device: a bad request fails alone, a batch without memory is halved, and a lost
// device fails all requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>

#include "tests/unit/loop/engine_fixture.h"

namespace castor {
namespace {

// Depth 1 fails in Launch, as the CPU does; depth 2 fails in Wait, with another batch in flight.
class EngineFailureTest : public EngineFixture, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override { script_->depth = GetParam(); }

  // Runs marks 1..count as one batch.
  void RunTogether(int count) {
    Occupy();
    for (int mark = 1; mark <= count; ++mark) Submit(Request(mark), mark);
    script_->Open();
  }

  static bool Contains(const Marks& marks, int mark) {
    return std::find(marks.begin(), marks.end(), mark) != marks.end();
  }
};

INSTANTIATE_TEST_SUITE_P(Depth, EngineFailureTest, testing::Values(1, 2));

TEST_P(EngineFailureTest, OneBadRequestFailsAlone) {
  Start();
  script_->SetHook([](const Marks& marks) {
    return Contains(marks, 2) ? MakeError(Reason::kInternal, "illegal instruction")
                              : absl::OkStatus();
  });
  RunTogether(3);
  EXPECT_TRUE(answers_.Get(1).ok());
  EXPECT_EQ(ReasonOfAnswer(2), Reason::kInternal);
  EXPECT_TRUE(answers_.Get(3).ok());
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}, {1, 2, 3}, {1}, {2}, {3}}));
  EXPECT_EQ(engine_->stats().device_faults, 2u);
  EXPECT_EQ(Refusals(Reason::kInternal), 1u);
  EXPECT_TRUE(engine_->healthy());
}

TEST_P(EngineFailureTest, ALonelyRequestIsRetriedOnce) {
  Start();
  int failures = 1;
  script_->SetHook([&failures](const Marks&) {
    return failures-- > 0 ? MakeError(Reason::kInternal, "a hiccup") : absl::OkStatus();
  });
  Submit(Request(1), 1);
  EXPECT_TRUE(answers_.Get(1).ok());
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{1}, {1}}));
}

TEST_P(EngineFailureTest, OutOfMemoryHalvesUntilItFits) {
  Start();
  script_->SetHook([](const Marks& marks) {
    return marks.size() > 2 || Contains(marks, 4) ? MakeError(Reason::kOutOfMemory, "too much")
                                                  : absl::OkStatus();
  });
  RunTogether(5);
  for (int id : {1, 2, 3, 5}) EXPECT_TRUE(answers_.Get(id).ok()) << id;
  EXPECT_EQ(ReasonOfAnswer(4), Reason::kOutOfMemory);
  EXPECT_EQ(script_->batches(),
            (std::vector<Marks>{{-1}, {1, 2, 3, 4, 5}, {1, 2}, {3, 4, 5}, {3}, {4, 5}, {4}, {5}}));
  EXPECT_EQ(engine_->stats().device_faults, 0u);
}

TEST_P(EngineFailureTest, ExceptionsBecomeStatuses) {
  Start();
  script_->SetHook([](const Marks& marks) -> absl::Status {
    if (Contains(marks, 1)) throw std::bad_alloc();
    if (Contains(marks, 2)) throw std::runtime_error("surprise");
    return absl::OkStatus();
  });
  RunTogether(3);
  EXPECT_EQ(ReasonOfAnswer(1), Reason::kOutOfMemory);
  EXPECT_EQ(ReasonOfAnswer(2), Reason::kInternal);
  EXPECT_NE(answers_.Get(2).status().message().find("surprise"), absl::string_view::npos);
  EXPECT_TRUE(answers_.Get(3).ok());
}

TEST_P(EngineFailureTest, DoesNotRetryWhatWasCancelledMeanwhile) {
  Start();
  Occupy();
  Submit(Request(1), 1);
  const Ticket second = Submit(Request(2), 2);
  AttentionRequest third = Request(3);
  third.call.deadline = clock_->Now() + std::chrono::seconds(6);
  Submit(std::move(third), 3);
  script_->SetHook([&](const Marks& marks) -> absl::Status {
    if (marks.size() < 3) return absl::OkStatus();
    engine_->Cancel(second);
    clock_->Advance(std::chrono::seconds(8));
    return MakeError(Reason::kInternal, "a hiccup");
  });
  script_->Open();
  EXPECT_TRUE(answers_.Get(1).ok());
  EXPECT_EQ(ReasonOfAnswer(2), Reason::kCancelled);
  EXPECT_EQ(ReasonOfAnswer(3), Reason::kDeadlineExceeded);
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}, {1, 2, 3}, {1}}));
  EXPECT_EQ(engine_->stats().cancelled_running, 2u);
}

TEST_P(EngineFailureTest, ALostDeviceAnswersEverythingInternal) {
  options_.max_batch_requests = 2;
  Start();
  script_->SetHook([this](const Marks& marks) {
    if (!Contains(marks, 2)) return absl::OkStatus();
    script_->healthy = false;
    return MakeError(Reason::kInternal, "fell off the bus");
  });
  Occupy();
  for (int mark = 1; mark <= 6; ++mark) Submit(Request(mark), mark);
  EXPECT_TRUE(engine_->healthy());
  script_->Open();
  for (int id : {1, 2, 5, 6}) EXPECT_EQ(ReasonOfAnswer(id), Reason::kInternal) << id;
  answers_.Get(3), answers_.Get(4);  // also in flight on a device of depth 2
  EXPECT_FALSE(engine_->healthy());
  EXPECT_FALSE(engine_->stats().device_healthy);
  auto refused = engine_->Submit(Request(7), answers_.Slot(7));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kInternal);
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(engine_->stats().load.inflight_requests, 0);
}

TEST_P(EngineFailureTest, ADeviceThatIsLostWhileIdleTakesNothingMore) {
  Start();
  script_->healthy = false;
  EXPECT_FALSE(engine_->healthy());
  auto refused = engine_->Submit(Request(1), answers_.Slot(1));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kInternal);
}

// A watchdog's view: no work, stalled work, and progress.
TEST_P(EngineFailureTest, ProgressStandsStillWhileTheDeviceHangs) {
  Start();
  EXPECT_FALSE(engine_->progress().busy);
  Occupy();
  const Progress before = engine_->progress();
  EXPECT_TRUE(before.busy);
  Submit(Request(1), 1);  // new arrivals are no progress
  EXPECT_EQ(engine_->progress().beats, before.beats);
  script_->Open();
  EXPECT_TRUE(answers_.Get(1).ok());
  while (engine_->progress().busy) std::this_thread::yield();
  EXPECT_GT(engine_->progress().beats, before.beats);
}

}  // namespace
}  // namespace castor

// The engine at the checkpoints of a running batch: it ends abandoned runs, and lets a short batch
// preempt if the policy says so.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/loop/engine_fixture.h"

namespace castor {
namespace {

constexpr int kLong = 1;  // marks a request that runs until it is ended or released

class EngineCheckpointTest : public EngineFixture {
 protected:
  ~EngineCheckpointTest() override { release_ = true; }

  // A batch with the long request keeps reaching checkpoints until it is ended or released.
  void SetUp() override {
    script_->SetRun([this](const Marks& marks, RunControl& control) {
      if (marks.front() != kLong) return absl::OkStatus();
      while (!release_) {
        if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
        std::this_thread::yield();
      }
      return absl::OkStatus();
    });
  }

  // Submits requests as one batch; each one's mark is also its id.
  std::vector<Ticket> SubmitTogether(std::vector<AttentionRequest> requests) {
    Occupy();
    std::vector<Ticket> tickets;
    for (AttentionRequest& request : requests) {
      const int id =
          static_cast<int>(*reinterpret_cast<const float*>(request.query.pieces[0].data()));
      tickets.push_back(Submit(std::move(request), id));
    }
    script_->Open();
    script_->WaitForBatches(2);
    return tickets;
  }

  // Predicts a second for requests of four tokens, and `others_us` for others.
  void PredictLong(double others_us) {
    predict_ = [others_us](int64_t tokens) {
      return PredictedTime{.own_us = tokens == 4 ? 1e6 : others_us};
    };
  }

  AttentionRequest Expiring(AttentionRequest request, std::chrono::seconds after) {
    request.call.deadline = clock_->Now() + after;
    return request;
  }

  std::atomic<bool> release_ = false;
};

TEST_F(EngineCheckpointTest, ABatchThatIsCancelledEndsAndTheNextBegins) {
  Start();
  const std::vector<Ticket> tickets = SubmitTogether({Request(kLong), Request(2)});
  Submit(Request(3, 5, 2), 3);
  for (const Ticket ticket : tickets) engine_->Cancel(ticket);
  EXPECT_EQ(ReasonOfAnswer(kLong), Reason::kCancelled);
  EXPECT_EQ(ReasonOfAnswer(2), Reason::kCancelled);
  EXPECT_TRUE(answers_.Get(3).ok());
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}, {kLong, 2}, {3}})) << "no retry";
  EXPECT_EQ(answers_.size(), 4u) << "each is answered once";
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.cancelled_running, 2u);
  EXPECT_EQ(stats.cancelled_queued, 0u);
  EXPECT_EQ(stats.device_faults, 0u);
  EXPECT_EQ(stats.load.inflight_requests, 0);
}

TEST_F(EngineCheckpointTest, EachRequestOfAnEndedBatchGetsItsOwnReason) {
  Start();
  const std::vector<Ticket> tickets =
      SubmitTogether({Request(kLong), Expiring(Request(2), std::chrono::seconds(6))});
  engine_->Cancel(tickets[0]);
  clock_->Advance(std::chrono::seconds(8));
  EXPECT_EQ(ReasonOfAnswer(kLong), Reason::kCancelled);
  EXPECT_EQ(ReasonOfAnswer(2), Reason::kDeadlineExceeded);
}

// Sharing a batch with a live request still gives a result, even a late one.
TEST_F(EngineCheckpointTest, ABatchContinuesUntilAllItsRequestsAreAbandoned) {
  Start();
  const std::vector<Ticket> tickets =
      SubmitTogether({Request(kLong), Expiring(Request(2), std::chrono::seconds(6)), Request(3)});
  engine_->Cancel(tickets[0]);
  clock_->Advance(std::chrono::seconds(8));
  const uint64_t before = engine_->progress().beats;
  while (engine_->progress().beats < before + 1000) std::this_thread::yield();
  EXPECT_EQ(answers_.size(), 1u);  // the one before
  release_ = true;
  for (const int id : {kLong, 2, 3}) EXPECT_TRUE(answers_.Get(id).ok());
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(engine_->stats().cancelled_running, 1u);
  EXPECT_EQ(engine_->stats().deadline_misses, 1u);
}

TEST_F(EngineCheckpointTest, ShortBatchesPreemptALongOne) {
  PredictLong(1e3);
  Start();
  SubmitTogether({Request(kLong)});
  for (int id = 2; id < 5; ++id) {
    Submit(Request(id, 2, 2), id);
    ASSERT_TRUE(answers_.Get(id).ok());  // while the long one still runs
    EXPECT_EQ(answers_.Get(id)->output.data.as<float>()[0], static_cast<float>(2 * id));
  }
  EXPECT_EQ(answers_.count(kLong), 0u);
  release_ = true;
  ASSERT_TRUE(answers_.Get(kLong).ok());
  EXPECT_EQ(answers_.Get(kLong)->output.data.as<float>()[0], static_cast<float>(2 * kLong));
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}, {kLong}, {2}, {3}, {4}}));
  EXPECT_EQ(engine_->stats().preemptions, 3u);
}

TEST_F(EngineCheckpointTest, APreemptorMayFailOrBeEndedAlone) {
  PredictLong(1e3);
  script_->SetHook([](const Marks& marks) {
    return marks.front() == 2 ? MakeError(Reason::kInternal, "illegal") : absl::OkStatus();
  });
  Start();
  const std::vector<Ticket> tickets = SubmitTogether({Request(kLong)});
  Submit(Request(2, 2, 2), 2);  // fails, and again after the long one has ended
  Submit(Request(3, 3, 3), 3);  // of another key
  EXPECT_TRUE(answers_.Get(3).ok());
  EXPECT_EQ(answers_.count(kLong), 0u);
  engine_->Cancel(tickets[0]);
  EXPECT_EQ(ReasonOfAnswer(kLong), Reason::kCancelled);
  EXPECT_EQ(ReasonOfAnswer(2), Reason::kInternal);
}

// On a device that takes two batches, and is slow to launch the second.
TEST_F(EngineCheckpointTest, ABatchThatIsDoneIsAnsweredWhileTheNextIsBeingLaunched) {
  std::atomic<bool> both = false;
  script_->depth = 2;
  script_->SetRun([&](const Marks& marks, RunControl& control) {
    while (!both) std::this_thread::yield();
    while (marks.front() == kLong && !release_) {
      if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
      std::this_thread::yield();
    }
    return absl::OkStatus();
  });
  Start();
  Submit(Request(2), 2);
  Submit(Request(kLong, 5, 2), kLong);  // of another key
  both = true;
  EXPECT_TRUE(answers_.Get(2).ok());
  EXPECT_EQ(answers_.count(kLong), 0u);
  release_ = true;
  EXPECT_TRUE(answers_.Get(kLong).ok());
}

// Each is much shorter than the one below it.
TEST_F(EngineCheckpointTest, APreemptorMayBePreempted) {
  std::atomic<bool> release_middle = false;
  predict_ = [](int64_t tokens) {
    return PredictedTime{.own_us = tokens == 4 ? 1e6 : tokens == 3 ? 1e4 : 1e3};
  };
  script_->SetRun([&](const Marks& marks, RunControl& control) {
    while ((marks.front() == kLong && !release_) || (marks.front() == 2 && !release_middle)) {
      if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
      std::this_thread::yield();
    }
    return absl::OkStatus();
  });
  Start();
  SubmitTogether({Request(kLong)});
  Submit(Request(2, 3, 2), 2);
  script_->WaitForBatches(3);
  Submit(Request(3, 2, 2), 3);
  EXPECT_TRUE(answers_.Get(3).ok());
  EXPECT_EQ(answers_.count(2), 0u);
  release_middle = true;
  EXPECT_TRUE(answers_.Get(2).ok());
  EXPECT_EQ(answers_.count(kLong), 0u);
  release_ = true;
  EXPECT_TRUE(answers_.Get(kLong).ok());
}

}  // namespace
}  // namespace castor

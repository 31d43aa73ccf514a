// How the automatic kernel moves from one approximation to the next when other requests share the
// batch, runs fail, and callers cancel.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/sanitizer.h"
#include "tests/unit/loop/engine_automatic_fixture.h"

namespace castor {
namespace {

// One batch holds requests that are satisfied, requests that continue on different paths, and
// requests that did not ask for the automatic kernel.
TEST_F(EngineFallbackTest, RequestsOfOneBatchGoTheirOwnWays) {
  Start();
  Occupy(0);
  Submit(Request({200}, Automatic{{}, 0.5}), 1);
  Submit(Request({300}, Automatic{{}, 0.1}), 2);
  Submit(Request({202}, Automatic{{kClustered, kVanilla}, 0.1}), 3);
  const Clustered same{.clusters = 800};
  Submit(Request({203}, same), 4);
  AttentionRequest asked = Request({204}, same);
  asked.fidelity_rows = 3;
  Submit(std::move(asked), 5);
  Release();
  for (int id = 0; id <= 5; ++id) ASSERT_TRUE(answers_.Get(id).ok()) << id;
  const auto kernel = [&](int id) { return NameOf(answers_.Get(id)->report.kernel.kernel); };
  EXPECT_EQ(kernel(1), kClustered);
  EXPECT_EQ(kernel(2), kImproved);
  EXPECT_EQ(kernel(3), kVanilla);
  EXPECT_EQ(kernel(4), kClustered);
  EXPECT_EQ(kernel(5), kClustered);
  EXPECT_TRUE(answers_.Get(1)->report.fidelity.has_value());
  EXPECT_FALSE(answers_.Get(3)->report.fidelity.has_value());
  EXPECT_FALSE(answers_.Get(4)->report.fidelity.has_value());
  EXPECT_EQ(answers_.Get(4)->report.kernel.predicted_us, 0);
  EXPECT_EQ(answers_.Get(5)->report.fidelity->rows, 3);
  EXPECT_NEAR(answers_.Get(5)->report.fidelity->relative_error, 0.2, 1e-6);
  EXPECT_EQ(answers_.Get(4)->report.batch.requests, 5);
}

// One tenant's requests are predicted as the cheap kernel that is tried first, and all run again
// exactly, which its turns must pay for: it has as many as the one that asks for that at once.
TEST_F(EngineFallbackTest, FurtherRunsAreCharged) {
  script_->vanilla_us = 18'000;
  predict_ = [](int64_t tokens) { return PredictedTime{.own_us = tokens == 221 ? 18e3 : 1e2}; };
  options_.max_batch_requests = 1;
  Start();
  Occupy(0);
  constexpr int kEach = 20;
  for (int i = 0; i < kEach; ++i) {
    AttentionRequest tries = Request({220}, Automatic{{kClustered, kVanilla}, 0.01});
    AttentionRequest exact = Request({221}, Vanilla{});
    tries.call.tenant = "a";
    exact.call.tenant = "b";
    Submit(std::move(tries), 100 + i);
    Submit(std::move(exact), 200 + i);
  }
  Release();
  for (int i = 0; i < kEach; ++i) {
    ASSERT_TRUE(answers_.Get(100 + i).ok());
    ASSERT_TRUE(answers_.Get(200 + i).ok());
    EXPECT_EQ(answers_.Get(100 + i)->report.kernel.rejected.size(), 1u);
  }
  std::vector<int64_t> exact;
  for (const ApproximateLaunch& launch : script_->launches()) {
    const int64_t tokens = launch.query_tokens.at(0);
    if (launch.kernel == kVanilla && tokens >= 220) exact.push_back(tokens);  // not probes
  }
  ASSERT_EQ(exact.size(), 2u * kEach);
  EXPECT_NEAR(std::count(exact.begin(), exact.begin() + kEach, 220), kEach / 2, 2);
}

TEST_F(EngineFallbackTest, AnswersAreTheSameAloneInCompanyAndAgain) {
  Start();
  std::vector<AttentionRequest> requests;
  for (int i = 0; i < 24; ++i) {
    const double allowance = std::vector<double>{0.5, 0.1, 0.01}[random_() % 3];
    requests.push_back(
        Request({static_cast<int64_t>(random_() % 90 + 220)}, Automatic{{}, allowance}));
  }
  std::vector<const AttentionResult*> alone;
  for (const AttentionRequest& request : requests) alone.push_back(&Run(request));
  for (int round = 0; round < 3; ++round) {
    const int first = 100 * round;
    for (size_t i = 0; i < requests.size(); ++i) Submit(requests[i], first + static_cast<int>(i));
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto& result = answers_.Get(first + static_cast<int>(i));
      ASSERT_TRUE(result.ok());
      EXPECT_EQ(NameOf(result->report.kernel.kernel), NameOf(alone[i]->report.kernel.kernel));
      EXPECT_EQ(std::memcmp(result->output.data.data(), alone[i]->output.data.data(),
                            alone[i]->output.data.size()),
                0);
      EXPECT_EQ(result->report.fidelity.has_value(), alone[i]->report.fidelity.has_value());
      if (result->report.fidelity) {
        EXPECT_EQ(result->report.fidelity->relative_error,
                  alone[i]->report.fidelity->relative_error);
      }
    }
  }
}

TEST_F(EngineFallbackTest, ACancelledRequestDoesNotRunItsNextKernel) {
  Start();
  std::atomic<Ticket> ticket = 0;
  script_->SetHook([&](const ApproximateLaunch& launch) {
    ticket.wait(0);  // until the request's ticket is known
    // The probe: after the approximation, before the next kernel.
    if (launch.kernel == kVanilla) engine_->Cancel(ticket);
    return absl::OkStatus();
  });
  auto submitted = engine_->Submit(Request({300}, Automatic{{}, 0.01}), answers_.Slot(1));
  ASSERT_TRUE(submitted.ok());
  ticket = *submitted;
  ticket.notify_all();
  EXPECT_EQ(ReasonOf(answers_.Get(1).status()), Reason::kCancelled);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla}));
}

TEST_F(EngineFallbackTest, AFailedProbeFailsOnlyRequestsThatAskedForIt) {
  options_.fidelity_share = 1;
  Start();
  script_->SetHook([](const ApproximateLaunch& launch) {
    return launch.kernel == kVanilla ? MakeError(Reason::kOutOfMemory, "no room for the probe")
                                     : absl::OkStatus();
  });
  Submit(Request({100}, Clustered{}), 1);
  ASSERT_TRUE(answers_.Get(1).ok()) << "picked for the statistics only";
  AttentionRequest asked = Request({100}, Clustered{});
  asked.fidelity_rows = 3;
  Submit(std::move(asked), 2);
  EXPECT_EQ(ReasonOf(answers_.Get(2).status()), Reason::kOutOfMemory);
  Submit(Request({100}, Automatic{{}, 0.5}), 3);
  EXPECT_EQ(ReasonOf(answers_.Get(3).status()), Reason::kOutOfMemory);
  EXPECT_EQ(StatsOf(kClustered).answered(), 1u);
}

// Runs, probes and further runs fail at random while callers cancel. Every request is answered
// once, and nothing stays reserved.
TEST_F(EngineFallbackTest, AnswersEveryRequestOnceWhateverHappensBetweenItsRuns) {
  constexpr int kThreads = 3;
  const int each = Scaled(100);
  options_.fidelity_share = 0.5;
  Start();
  std::mt19937 trouble(seed_);  // the engine thread's
  script_->SetHook([&trouble](const ApproximateLaunch&) {
    const auto dice = trouble() % 20;
    if (dice == 0) return MakeError(Reason::kOutOfMemory, "no room now");
    if (dice == 1) return MakeError(Reason::kInternal, "a fault");
    return absl::OkStatus();
  });
  std::vector<AttentionRequest> requests;
  for (int i = 0; i < kThreads * each; ++i) {
    const Kernel kernels[] = {Automatic{{}, 0.5},  Automatic{{}, 0.1},
                              Automatic{{}, 0.01}, Automatic{{kClustered, kImproved}, 0.01},
                              Clustered{},         Vanilla{}};
    requests.push_back(
        Request({static_cast<int64_t>(random_() % 60 + 200)}, kernels[random_() % 6]));
    requests.back().fidelity_rows = random_() % 4 == 0 ? 5 : 0;
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * each; i < (t + 1) * each; ++i) {
        auto ticket = engine_->Submit(requests[i], answers_.Slot(i));
        ASSERT_TRUE(ticket.ok()) << ticket.status();
        if (i % 5 == 0) engine_->Cancel(*ticket);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(answers_.size(), requests.size());
  uint64_t ok = 0;
  for (int i = 0; i < kThreads * each; ++i) {
    EXPECT_EQ(answers_.count(i), 1u) << i;
    const auto& answer = answers_.Get(i);
    ok += answer.ok();
    const auto* automatic = std::get_if<Automatic>(&requests[i].kernel);
    if (!answer.ok() || automatic == nullptr || !automatic->allowed.empty()) continue;
    if (answer->report.fidelity) {
      EXPECT_LE(answer->report.fidelity->relative_error, automatic->max_relative_error);
    }
  }
  uint64_t counted = 0;
  for (const WorkStats& work : engine_->stats().work) counted += work.answered();
  EXPECT_EQ(counted, ok);
  answers_.Clear();
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
  EXPECT_EQ(engine_->stats().load.inflight_requests, 0);
}

}  // namespace
}  // namespace castor

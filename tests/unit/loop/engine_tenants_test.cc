// Tenants' weights and quotas, replaced while requests wait and run.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/loop/engine_fixture.h"

namespace castor {
namespace {

class EngineTenantsTest : public EngineFixture {
 protected:
  AttentionRequest Of(std::string tenant, int mark, int64_t tokens = 4) {
    AttentionRequest request = Request(mark, tokens);
    request.call.tenant = std::move(tenant);
    return request;
  }
};

TEST_F(EngineTenantsTest, TermsOutOfRangeAreRefusedAtTheStart) {
  const auto problem = [&](TenantTerms terms) {
    EngineOptions options;
    options.tenants = {{"team", terms}};
    const absl::Status status = TryStart(options).status();
    return status.ok() ? "" : FieldOf(status).value_or("?") + ": " + std::string(status.message());
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double weight : {0.0, -1.0, 0.0009, 1000.1, kNan}) {
    EXPECT_EQ(problem({.weight = weight}),
              "tenants: tenants: the weight of \"team\" is not within 0.001..1000");
  }
  const std::string quota = "tenants: tenants: a quota of \"team\" is not within 0..1099511627776";
  EXPECT_EQ(problem({.max_queued_requests = -1}), quota);
  EXPECT_EQ(problem({.max_queued_tokens = (int64_t{1} << 40) + 1}), quota);
  EXPECT_EQ(problem({.max_queued_bytes = std::numeric_limits<int64_t>::min()}), quota);
  EXPECT_EQ(problem({.weight = 1000, .max_queued_bytes = int64_t{1} << 40}), "");
}

TEST_F(EngineTenantsTest, WhatWaitsFollowsNewWeights) {
  options_.max_batch_requests = 1;
  predict_ = [](int64_t) { return PredictedTime{.own_us = 1000}; };
  Start();
  Occupy();
  for (int i = 0; i < 40; ++i) {
    Submit(Of("a", 100 + i), 100 + i);
    Submit(Of("b", 200 + i), 200 + i);
  }
  engine_->SetTenants({{"a", {.weight = 3}}});
  script_->Open();
  script_->WaitForBatches(81);
  const auto batches = script_->batches();
  const auto of_a = std::count_if(batches.begin() + 1, batches.begin() + 41,
                                  [](const Marks& marks) { return marks.at(0) < 200; });
  EXPECT_NEAR(static_cast<double>(of_a), 30, 1);
}

// Whose runs take four times as long as was predicted has a turn for each four of another's, also
// if it cancels them late.
TEST_F(EngineTenantsTest, WhatIsEndedIsOwedToo) {
  options_.max_batch_requests = 1;
  predict_ = [](int64_t) { return PredictedTime{.batch_us = 0, .own_us = 100'000}; };
  Start();
  std::map<int, Ticket> tickets;
  script_->compute_us = 100'000;
  script_->SetRun([&](const Marks& marks, RunControl& control) {
    const int mark = marks.at(0);
    if (mark < 100 || mark >= 200) return absl::OkStatus();
    clock_->Advance(std::chrono::milliseconds(400));
    engine_->Cancel(tickets.at(mark));
    while (true) {
      if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
      std::this_thread::yield();
    }
  });
  Occupy();
  for (int i = 0; i < 20; ++i) {
    tickets[100 + i] = Submit(Of("a", 100 + i), 100 + i);
    Submit(Of("b", 200 + i), 200 + i);
  }
  script_->Open();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ReasonOfAnswer(100 + i), Reason::kCancelled);
    EXPECT_TRUE(answers_.Get(200 + i).ok());
  }
  const auto batches = script_->batches();
  const auto of_a = std::count_if(batches.begin() + 1, batches.begin() + 21,
                                  [](const Marks& marks) { return marks.at(0) < 200; });
  EXPECT_NEAR(static_cast<double>(of_a), 4, 1);
}

// Callers of many names while the terms change all the time, and are what no file should say.
TEST_F(EngineTenantsTest, TermsMayChangeWhileOthersSubmit) {
  const unsigned seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  options_.max_queued_requests = 64;
  options_.max_batch_requests = 8;
  options_.models.push_back({"fake-model", "present"});
  Start();
  constexpr int kThreads = 3;
  const int each = Scaled(1500);
  std::vector<std::atomic<int>> answers(static_cast<size_t>(kThreads * each));
  std::atomic<int> wrong = 0;
  std::atomic<int> answered = 0;
  const auto client = [&](int thread) {
    std::mt19937 random(seed + static_cast<unsigned>(thread));
    std::vector<float> data(8 * 3);
    for (int i = 0; i < each; ++i) {
      const int id = thread * each + i;
      const std::string tenant = std::to_string(random() % 4 == 0 ? random() % 1000 : random() % 3);
      absl::StatusOr<Ticket> ticket;
      const auto record = [&, id](const auto& result) {
        answered += result.ok();
        answers[static_cast<size_t>(id)].fetch_add(1);
      };
      if (random() % 3 == 0) {
        EncodeRequest request = TextRequest({"text"});
        request.call.tenant = tenant;
        ticket = engine_->Submit(std::move(request), record);
      } else {
        const int64_t tokens = 1 + random() % 3;
        data.assign(static_cast<size_t>(8 * tokens), 1);
        AttentionRequest request;
        request.query = {DType::kFloat32, {tokens, 1, 8}, {std::as_bytes(std::span(data))}};
        request.key = request.value = request.query;
        request.call.tenant = tenant;
        ticket = engine_->Submit(std::move(request), record);
      }
      if (ticket.ok()) {
        if (random() % 8 == 0) engine_->Cancel(*ticket);
        continue;
      }
      const Reason reason = ReasonOf(ticket.status());
      wrong += reason != Reason::kQueueFull && reason != Reason::kTooLarge;
      answers[static_cast<size_t>(id)].fetch_add(1);
      std::this_thread::yield();
    }
  };
  std::atomic<bool> done = false;
  const auto keeper = [&] {
    std::mt19937 random(seed - 1);
    const double weights[] = {0.001,
                              1,
                              1000,
                              0,
                              -1,
                              std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity()};
    const int64_t quotas[] = {0,
                              0,
                              1,
                              2,
                              20,
                              500,
                              -1,
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()};
    while (!done) {
      std::map<std::string, TenantTerms> tenants;
      for (uint32_t i = random() % 8; i > 0; --i) {
        tenants[std::to_string(random() % 5)] = {
            .weight = weights[random() % std::size(weights)],
            .max_queued_requests = quotas[random() % std::size(quotas)],
            .max_queued_tokens = quotas[random() % std::size(quotas)],
            .max_queued_bytes = quotas[random() % std::size(quotas)]};
      }
      engine_->SetTenants(std::move(tenants));
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < kThreads; ++i) clients.emplace_back(client, i);
  std::vector<std::thread> keepers;
  for (int i = 0; i < 2; ++i) keepers.emplace_back(keeper);
  for (std::thread& thread : clients) thread.join();
  done = true;
  for (std::thread& thread : keepers) thread.join();
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  for (const auto& count : answers) ASSERT_EQ(count, 1);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(answered, 0);
  while (engine_->stats().load.inflight_requests > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().load.inflight_tokens, 0);
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
}

}  // namespace
}  // namespace castor

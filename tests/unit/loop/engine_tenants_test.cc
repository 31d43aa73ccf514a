// Tenants' weights and quotas, replaced while requests wait and run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <utility>

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
TEST_F(EngineTenantsTest, EndedRunsAreChargedToo) {
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

}  // namespace
}  // namespace castor

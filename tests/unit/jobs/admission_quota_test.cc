// Quotas of tenants.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/jobs/admission.h"
#include "tests/unit/scheduling/fake_clock.h"

namespace castor {
namespace {

using std::chrono::milliseconds;

Claim Of(std::string tenant, Cost cost = {1, 1, 1}) {
  Claim claim;
  claim.cost = cost;
  claim.tenant = std::move(tenant);
  return claim;
}

class AdmissionQuotaTest : public testing::Test {
 protected:
  void Quotas(TenantTable::Terms terms) { tenants_->Set(std::move(terms)); }

  // Admits it for as long as the test keeps it.
  void Admit(Claim claim) {
    auto reservation = admission_->Reserve(claim);
    ASSERT_TRUE(reservation.ok()) << reservation.status();
    admitted_.push_back(*std::move(reservation));
  }
  absl::Status Refusal(Claim claim) { return admission_->Reserve(claim).status(); }
  void ExpectFull(Claim claim, const std::string& quota) {
    const absl::Status status = Refusal(claim);
    EXPECT_EQ(ReasonOf(status), Reason::kQueueFull);
    EXPECT_EQ(status.message(),
              "the queue is full for this tenant: no room in its own quota of " + quota);
    EXPECT_TRUE(RetryAfterOf(status));
  }
  void ExpectTooLarge(Claim claim, const std::string& problem) {
    const absl::Status status = Refusal(claim);
    EXPECT_EQ(ReasonOf(status), Reason::kTooLarge);
    EXPECT_EQ(status.message(), "the request takes " + problem);
    EXPECT_FALSE(RetryAfterOf(status));
    EXPECT_EQ(ReasonOf(admission_->CheckAlone(claim.cost, claim.tenant)), Reason::kTooLarge);
  }

  const std::shared_ptr<FakeClock> clock_ = std::make_shared<FakeClock>();
  const std::shared_ptr<TenantTable> tenants_ = std::make_shared<TenantTable>();
  const std::shared_ptr<Admission> admission_ =
      std::make_shared<Admission>(Budgets{.most = {64, 6400, 640'000}}, clock_, tenants_);
  std::vector<Reservation> admitted_;
};

TEST_F(AdmissionQuotaTest, BoundsWhatATenantHasAdmitted) {
  Quotas({{"r", {.max_queued_requests = 2}},
          {"t", {.max_queued_tokens = 1000}},
          {"b", {.max_queued_bytes = 5000}},
          {"", {.max_queued_requests = 1}}});
  Admit(Of("r", {1, 3000, 1}));
  Admit(Of("r"));
  ExpectFull(Of("r"), "2 requests");
  Admit(Of("t", {1, 900, 100'000}));
  ExpectFull(Of("t", {1, 101, 1}), "1000 tokens");
  Admit(Of("t", {1, 100, 1}));
  Admit(Of("b", {1, 1000, 4999}));
  ExpectFull(Of("b", {1, 1, 2}), "5000 bytes");
  Admit(Of("b"));
  Admit(Of(""));
  ExpectFull(Of(""), "1 requests");
  for (int i = 0; i < 10; ++i) Admit(Of("other", {1, 50, 1000}));
}

TEST_F(AdmissionQuotaTest, WhatExceedsItAloneIsTooLarge) {
  Quotas({{"a", {.max_queued_requests = 1, .max_queued_tokens = 100, .max_queued_bytes = 1000}},
          {"wide", {.max_queued_tokens = 1 << 20}}});
  ExpectTooLarge(Of("a", {2, 1, 1}), "2 requests, its tenant's quota is 1");
  ExpectTooLarge(Of("a", {1, 101, 1}), "101 tokens, its tenant's quota is 100");
  ExpectTooLarge(Of("a", {1, 1, 1001}), "1001 bytes, its tenant's quota is 1000");
  ExpectTooLarge(Of("wide", {1, 6401, 1}), "6401 tokens, this engine admits 6400");
  EXPECT_TRUE(admission_->CheckAlone({1, 100, 1000}, "a").ok());
  Admit(Of("a", {1, 100, 1000}));
}

TEST_F(AdmissionQuotaTest, AnswersMakeRoom) {
  Quotas({{"a", {.max_queued_requests = 1, .max_queued_tokens = 10, .max_queued_bytes = 100}}});
  Admit(Of("a", {1, 10, 60}));
  ExpectFull(Of("a"), "10 tokens");
  admitted_[0].LeaveQueue();
  ExpectFull(Of("a"), "10 tokens");  // it runs: not answered yet
  admitted_[0].KeepOnly(60);
  Admit(Of("a", {1, 1, 40}));
  admitted_[1].Release();
  ExpectFull(Of("a", {1, 1, 41}), "100 bytes");  // the caller has not taken the answer yet
  admitted_[0].Release();
  Admit(Of("a", {1, 10, 100}));
}

TEST_F(AdmissionQuotaTest, AdjustingAnEstimateChangesWhatIsLeft) {
  Quotas({{"a", {.max_queued_tokens = 100}}});
  Admit(Of("a", {1, 90, 1}));
  admitted_[0].Adjust(10, 1);
  Admit(Of("a", {1, 90, 1}));
  admitted_[0].Adjust(1000, 1);  // an admitted request is not refused later
  ExpectFull(Of("a"), "100 tokens");
  admitted_[0].Release();
  Admit(Of("a", {1, 10, 1}));
}

TEST_F(AdmissionQuotaTest, ALoweredQuotaIsMetFirst) {
  for (int i = 0; i < 6; ++i) Admit(Of("a", {1, 10, 10}));
  Quotas({{"a", {.max_queued_requests = 4, .max_queued_bytes = 40}}});
  ExpectFull(Of("a"), "40 bytes");
  EXPECT_EQ(admission_->in_use().requests, 6) << "nothing is lost";
  admitted_.resize(4);
  ExpectFull(Of("a"), "40 bytes");
  admitted_.resize(3);
  Admit(Of("a"));
  ExpectFull(Of("a"), "4 requests");
  Quotas({});
  for (int i = 0; i < 10; ++i) Admit(Of("a"));
  Quotas({{"a",
           {.max_queued_requests = std::numeric_limits<int64_t>::max(),
            .max_queued_bytes = std::numeric_limits<int64_t>::max()}}});
  Admit(Of("a"));
}

TEST_F(AdmissionQuotaTest, TheHintIsThePredictedTimeUntilTheTenantHasRoom) {
  Quotas({{"a", {.weight = 3, .max_queued_requests = 2}}});
  Claim mine = Of("a");
  mine.time.own_us = 90e3;
  Claim theirs = Of("b");
  theirs.time.own_us = 500e3;
  Admit(theirs);
  Admit(mine);
  Admit(mine);
  EXPECT_EQ(RetryAfterOf(Refusal(mine)), milliseconds(121)) << "one of two, and a third as much";
  Quotas({{"a", {.max_queued_requests = 1}}});
  EXPECT_GE(RetryAfterOf(Refusal(mine)), milliseconds(180)) << "two of two";
  admitted_[1].LeaveQueue();
  admitted_[2].LeaveQueue();
  EXPECT_EQ(RetryAfterOf(Refusal(mine)), milliseconds(200)) << "nothing of it waits";
}

// Else one with a great weight and a small quota would keep the last part of the budgets empty.
TEST_F(AdmissionQuotaTest, NoRoomIsKeptForATenantThatHasUsedUpItsQuota) {
  Quotas({{"small", {.weight = 1000, .max_queued_requests = 1}}});
  Admit(Of("small"));
  for (int i = 0; i < 63; ++i) {
    ExpectFull(Of("small"), "1 requests");
    Admit(Of("other"));
  }
  EXPECT_EQ(ReasonOf(Refusal(Of("other"))), Reason::kQueueFull);
}

TEST_F(AdmissionQuotaTest, WhoWasRefusedByItsQuotaHasNoRoomKept) {
  Quotas({{"small", {.weight = 1000, .max_queued_requests = 1}}});
  Admit(Of("small"));
  ExpectFull(Of("small"), "1 requests");
  admitted_.clear();
  for (int i = 0; i < 64; ++i) Admit(Of("other"));
}

TEST_F(AdmissionQuotaTest, RoomIsKeptForWhoHasQuotaLeft) {
  Quotas({{"small", {.max_queued_requests = 8}}});
  Admit(Of("small"));
  for (int i = 0; i < 55; ++i) Admit(Of("greedy"));
  EXPECT_EQ(ReasonOf(Refusal(Of("greedy"))), Reason::kQueueFull) << "the last part";
  for (int i = 0; i < 7; ++i) Admit(Of("small"));
  ExpectFull(Of("small"), "8 requests");
}

}  // namespace
}  // namespace castor

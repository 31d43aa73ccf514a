// Quotas of tenants.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "tests/unit/ledger/ledger_fixture.h"

namespace castor {
namespace {

using std::chrono::milliseconds;

class QuotaTest : public LedgerFixture {
 protected:
  QuotaTest()
      : LedgerFixture({.budgets = {.most = {64, 6400, 640'000}},
                       .limits = {.max_tokens = 1000, .max_requests = 1}}) {}

  static Spec Of(std::string tenant, Cost cost = {1, 1, 1}) {
    return {.cost = cost, .tenant = std::move(tenant)};
  }
  void Quotas(Tenants::Terms terms) { ledger_->SetTenants(std::move(terms)); }

  void ExpectFull(const Spec& spec, const std::string& quota) {
    const absl::Status status = Refusal(spec);
    EXPECT_EQ(ReasonOf(status), Reason::kQueueFull);
    EXPECT_EQ(status.message(), "queue full for this tenant: no room in its quota of " + quota);
    EXPECT_TRUE(RetryAfterOf(status));
  }
  void ExpectTooLarge(const Spec& spec, const std::string& problem) {
    const absl::Status status = Refusal(spec);
    EXPECT_EQ(ReasonOf(status), Reason::kTooLarge);
    EXPECT_EQ(status.message(), "the request takes " + problem);
    EXPECT_FALSE(RetryAfterOf(status));
    EXPECT_EQ(ReasonOf(ledger_->CheckAlone(spec.cost, spec.tenant)), Reason::kTooLarge);
  }
};

TEST_F(QuotaTest, BoundsWhatATenantHasAdmitted) {
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

TEST_F(QuotaTest, WhatExceedsItAloneIsTooLarge) {
  Quotas({{"a", {.max_queued_requests = 1, .max_queued_tokens = 100, .max_queued_bytes = 1000}},
          {"wide", {.max_queued_tokens = 1 << 20}}});
  ExpectTooLarge(Of("a", {2, 1, 1}), "2 requests; its tenant's quota is 1");
  ExpectTooLarge(Of("a", {1, 101, 1}), "101 tokens; its tenant's quota is 100");
  ExpectTooLarge(Of("a", {1, 1, 1001}), "1001 bytes; its tenant's quota is 1000");
  ExpectTooLarge(Of("wide", {1, 6401, 1}), "6401 tokens; this engine admits 6400");
  EXPECT_TRUE(ledger_->CheckAlone({1, 100, 1000}, "a").ok());
  Admit(Of("a", {1, 100, 1000}));
}

TEST_F(QuotaTest, AnswersMakeRoom) {
  Quotas({{"a", {.max_queued_requests = 1, .max_queued_tokens = 10, .max_queued_bytes = 100}}});
  Admit(Of("a", {1, 10, 60}));
  ExpectFull(Of("a"), "10 tokens");
  admitted_[0]->reservation.ResizeTo(60);
  Admit(Of("a", {1, 1, 40}));
  admitted_[1]->reservation.Release();
  ExpectFull(Of("a", {1, 1, 41}), "100 bytes");  // the caller has not taken the answer yet
  admitted_[0]->reservation.Release();
  Admit(Of("a", {1, 10, 100}));
}

TEST_F(QuotaTest, ALoweredQuotaIsMetFirst) {
  for (int i = 0; i < 6; ++i) Admit(Of("a", {1, 10, 10}));
  Quotas({{"a", {.max_queued_requests = 4, .max_queued_bytes = 40}}});
  ExpectFull(Of("a"), "40 bytes");
  EXPECT_EQ(ledger_->load().inflight_requests, 6) << "nothing is lost";
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

TEST_F(QuotaTest, TheHintIsThePredictedTimeUntilTheTenantHasRoom) {
  Quotas({{"a", {.weight = 3, .max_queued_requests = 2}}});
  Spec mine = Of("a");
  mine.ms = 90;
  Spec theirs = Of("b");
  theirs.ms = 500;
  Admit(theirs);
  Push(mine);
  Push(mine);
  EXPECT_EQ(RetryAfterOf(Refusal(mine)), milliseconds(121)) << "one of two, and a third as much";
  Quotas({{"a", {.max_queued_requests = 1}}});
  EXPECT_GE(RetryAfterOf(Refusal(mine)), milliseconds(180)) << "two of two";
  const JobList running = Next(), also = Next();
  EXPECT_EQ(RetryAfterOf(Refusal(mine)), milliseconds(200)) << "nothing of it waits";
}

// Otherwise a tenant with a great weight and a small quota would keep the reserve empty.
TEST_F(QuotaTest, NoRoomIsKeptForATenantThatHasUsedUpItsQuota) {
  Quotas({{"small", {.weight = 1000, .max_queued_requests = 1}}});
  Admit(Of("small"));
  for (int i = 0; i < 63; ++i) {
    ExpectFull(Of("small"), "1 requests");
    Admit(Of("other"));
  }
  EXPECT_EQ(ReasonOf(Refusal(Of("other"))), Reason::kQueueFull);
}

TEST_F(QuotaTest, RoomIsKeptForATenantWithQuotaLeft) {
  Quotas({{"small", {.max_queued_requests = 8}}});
  Admit(Of("small"));
  for (int i = 0; i < 55; ++i) Admit(Of("greedy"));
  EXPECT_EQ(ReasonOf(Refusal(Of("greedy"))), Reason::kQueueFull) << "the reserve";
  for (int i = 0; i < 7; ++i) Admit(Of("small"));
  ExpectFull(Of("small"), "8 requests");
}

// ---- Reserve

TEST_F(QuotaTest, WhatIsGatheredCountsAgainstTheTenantsQuotas) {
  Quotas({{"a", {.max_queued_requests = 2, .max_queued_bytes = 1000}}});
  auto gathered = ledger_->Reserve("a", 600);
  ASSERT_TRUE(gathered.ok()) << gathered.status();
  EXPECT_EQ(ledger_->load().inflight_requests, 0) << "it is not admitted";
  ExpectFull(Of("a", {1, 1, 401}), "1000 bytes");
  EXPECT_EQ(ReasonOf(ledger_->Reserve("a", 401).status()), Reason::kQueueFull);
  EXPECT_EQ(ReasonOf(ledger_->Reserve("a", 1001).status()), Reason::kTooLarge);
  Admit(Of("a"));
  ExpectFull(Of("a"), "2 requests");
  EXPECT_EQ(ReasonOf(ledger_->Reserve("a", 1).status()), Reason::kQueueFull);
  gathered->reset();
  Admit(Of("a", {1, 1, 999}));
}

// Three quarters of a sixteenth of 640,000 bytes.
TEST_F(QuotaTest, NoTenantGathersMoreThanThreeQuarters) {
  auto greedy = ledger_->Reserve("greedy", 30'000);
  ASSERT_TRUE(greedy.ok()) << greedy.status();
  const absl::Status full = ledger_->Reserve("greedy", 1).status();
  EXPECT_EQ(ReasonOf(full), Reason::kQueueFull);
  EXPECT_TRUE(RetryAfterOf(full));
  auto other = ledger_->Reserve("other", 10'000);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(ReasonOf(ledger_->Reserve("third", 1).status()), Reason::kQueueFull);
  for (int i = 0; i < 64; ++i) Admit(Of("greedy"));  // gathered bytes are not in the budgets
  greedy->reset();
  EXPECT_TRUE(ledger_->Reserve("third", 1).ok());
  ledger_->StartDraining();
  EXPECT_EQ(ReasonOf(ledger_->Reserve("third", 1).status()), Reason::kDraining);
}

// Even if many others come and go meanwhile.
TEST_F(QuotaTest, ATenantThatOnlyGathersIsNotForgotten) {
  Quotas({{"a", {.max_queued_requests = 1}}});
  auto gathered = ledger_->Reserve("a", 100);
  ASSERT_TRUE(gathered.ok()) << gathered.status();
  for (size_t i = 0; i < 5 * Tenants::kMany; ++i) {
    EXPECT_TRUE(ledger_->Reserve("passer-by " + std::to_string(i), 1).ok());
  }
  ExpectFull(Of("a"), "1 requests");
  gathered->reset();
  Admit(Of("a"));
}

}  // namespace
}  // namespace castor

// Turns between tenants.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "engine/ledger/tenants.h"
#include "tests/unit/ledger/ledger_fixture.h"

namespace castor {
namespace {

// A share of some tenants that always wait, unless a test says otherwise.
class FairShareTest : public testing::Test {
 protected:
  explicit FairShareTest(double credit = 0) : share_(credit) {}

  FairShare::Account& Of(const std::string& name, double weight = 1) {
    std::unique_ptr<Tenant>& tenant = tenants_[name];
    if (tenant == nullptr) {
      tenant = std::make_unique<Tenant>();
      tenant->name = name;
      tenant->device = {.tenant = tenant.get(), .number = ++last_, .weight = weight};
      share_.Open(tenant->device);
    }
    return tenant->device;
  }
  FairShare::Account& Arrive(const std::string& name, double weight = 1) {
    share_.Arrive(Of(name, weight));
    return Of(name);
  }

  // Serves the first for so long, and says who it was.
  std::string Serve(double service = 1) {
    Tenant& first = *share_.order().begin()->second;
    share_.Begin(first.device);
    share_.Charge(first.device, service);
    return first.name;
  }
  std::string Order(int count) {
    std::string order;
    while (count-- > 0) order += Serve();
    return order;
  }

  FairShare share_;
  std::map<std::string, std::unique_ptr<Tenant>> tenants_;
  uint64_t last_ = 0;
};

TEST_F(FairShareTest, LongServiceCountsForMore) {
  Arrive("a");
  Arrive("b");
  EXPECT_EQ(Serve(4), "a");
  EXPECT_EQ(Order(6), "bbbbab");
  share_.Charge(Of("a"), 3);
  EXPECT_EQ(Order(3), "bbb");
  share_.Charge(Of("a"), -2);  // what was charged too much is given back
  EXPECT_EQ(Order(2), "aa");
}

TEST_F(FairShareTest, WhatALowWeightMadeOfADebtIsNotKept) {
  Arrive("a", 0.001);
  Arrive("b");
  EXPECT_EQ(Serve(4), "a");
  EXPECT_EQ(Order(9), "bbbbbbbbb");
  EXPECT_EQ(Of("a").time, 4000);
  share_.Reweigh(Of("a"), 1);
  EXPECT_EQ(Order(4), "bbba") << "it has had 4";
}

TEST_F(FairShareTest, IdleTimeIsNoCredit) {
  Arrive("b");
  Arrive("a");
  EXPECT_EQ(Serve(), "b");
  share_.Leave(Of("b"));
  Order(50);
  Arrive("b");
  EXPECT_EQ(Of("a").time - Of("b").time, 1) << "as far as the service that began last";
  EXPECT_EQ(Order(4), "bbab");
}

TEST_F(FairShareTest, ToAskAnewIsNoWayOutOfADebt) {
  Arrive("a");
  Arrive("b");
  EXPECT_EQ(Serve(4), "a");
  share_.Leave(Of("a"));
  EXPECT_TRUE(share_.Owes(Of("a")));
  EXPECT_EQ(Serve(), "b");
  Arrive("a");
  EXPECT_EQ(Of("a").time, 4);
  EXPECT_EQ(Order(4), "bbba");
}

class CreditTest : public FairShareTest {
 protected:
  CreditTest() : FairShareTest(/*credit=*/3) {}
};

TEST_F(CreditTest, WhoUsedLessThanItsShareHasALittle) {
  Arrive("b");
  share_.Leave(Of("b"));
  Arrive("a");
  Order(50);
  Arrive("b");
  EXPECT_EQ(Of("a").time - Of("b").time, 4) << "the last service, and the credit";
  EXPECT_EQ(Order(5), "bbbbb");
  EXPECT_GE(Arrive("new").time, Of("a").time - 1) << "a new name brings none";
}

// Else what a tenant of a great weight is served would be lost once virtual time has come far.
TEST_F(FairShareTest, ShortServiceCountsHoweverFarVirtualTimeHasCome) {
  Arrive("a", 0.001);
  for (int i = 0; i < 1000; ++i) Serve(1e11);  // 1e14 of virtual time
  ASSERT_TRUE(share_.IsFar());
  share_.StartAnew(Of("a"));
  share_.FinishAnew();
  Arrive("b");
  Arrive("c", 1000);
  const std::string order = Order(2502);
  EXPECT_EQ(std::count(order.begin(), order.end(), 'b'), 3);
}

class TurnsTest : public LedgerFixture {
 protected:
  TurnsTest()
      : LedgerFixture({.budgets = {.most = {100'000, 1 << 30, 1 << 30}},
                       .limits = {.max_tokens = 1 << 20, .max_requests = 1}}) {}
};

// Whatever was predicted, a tenant pays for what it had: nobody gains by being predicted badly.
TEST_F(TurnsTest, WhatTookLongerThanPredictedIsPaidFor) {
  for (int i = 0; i < 100; ++i) {
    for (const char* tenant : {"bad", "good"}) Push({.ms = 10, .tenant = tenant});
  }
  std::map<std::string, double> had;
  for (int i = 0; i < 100; ++i) {
    JobList jobs = Next();
    const std::string tenant = jobs.front()->tenant;
    const double ms = tenant == "bad" ? 30 : 10;
    had[tenant] += ms;
    Run(std::move(jobs), ms);
  }
  EXPECT_NEAR(had["bad"] / had["good"], 1, 0.1);
}

TEST_F(TurnsTest, AFewRequestsOfWhoAsksForLittleAreServedAtOnce) {
  Push({.ms = 1, .tenant = "modest"});
  Run(Next(), 1);
  for (int i = 0; i < 100; ++i) Push({.ms = 100, .tenant = "greedy"});
  for (int i = 0; i < 10; ++i) Run(Next(), 100);
  for (int i = 0; i < 5; ++i) Push({.ms = 10, .tenant = "modest"});
  for (int i = 0; i < 5; ++i) {
    JobList jobs = Next();
    EXPECT_EQ(jobs.front()->tenant, "modest");
    Run(std::move(jobs), 10);
  }
}

// Texts: one of many slices makes way for those that come, and goes on in between.
TEST_F(TurnsTest, LongTextsMakeWayForShortOnes) {
  const auto tokenize = [&](const char* tenant, int64_t bytes) {
    auto job = Make({.ms = 1, .tenant = tenant});
    EXPECT_TRUE(ledger_->Admit(*job).ok());
    job->slice_bytes = bytes;
    return *ledger_->Tokenize(std::move(job));
  };
  Ledger::AtHand at_hand = Ledger::AtHand::kNothing;
  const Ticket long_one = tokenize("a", 4096);
  for (int i = 0; i < 3; ++i) {
    auto job = ledger_->NextToTokenize(&at_hand);
    EXPECT_EQ(job->ticket, long_one);
    ledger_->TokenizeMore(std::move(job));
  }
  const Ticket short_one = tokenize("a", 10);
  auto job = ledger_->NextToTokenize(&at_hand);
  EXPECT_EQ(job->ticket, short_one);
  ledger_->Tokenized(std::move(job));
  EXPECT_EQ(Tickets(Next()), std::vector<Ticket>{short_one});
  // One that waits to be tokenized is answered at once when it is cancelled, and leaves nothing.
  ledger_->Cancel(long_one);
  const auto answers = TakeAnswers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(ReasonOf(answers.front().second), Reason::kCancelled);
}

// However many texts one tenant sends, another's next one is among the next two.
TEST_F(TurnsTest, TokenizingIsFairBetweenTenants) {
  const auto tokenize = [&](const char* tenant) {
    auto job = Make({.ms = 1, .tenant = tenant});
    EXPECT_TRUE(ledger_->Admit(*job).ok());
    job->slice_bytes = 4096;
    EXPECT_TRUE(ledger_->Tokenize(std::move(job)).ok());
  };
  for (int i = 0; i < 100; ++i) tokenize("greedy");
  Ledger::AtHand at_hand = Ledger::AtHand::kNothing;
  for (int i = 0; i < 10; ++i) ledger_->Tokenized(ledger_->NextToTokenize(&at_hand));
  tokenize("modest");
  std::string first, second;
  for (std::string* tenant : {&first, &second}) {
    auto job = ledger_->NextToTokenize(&at_hand);
    *tenant = job->tenant;
    ledger_->Tokenized(std::move(job));
  }
  EXPECT_TRUE(first == "modest" || second == "modest");
}

}  // namespace
}  // namespace castor

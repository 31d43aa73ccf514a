// Turns between tenants.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/ledger/ledger_fixture.h"

namespace castor {
namespace {

class TurnsTest : public LedgerFixture {
 protected:
  TurnsTest()
      : LedgerFixture({.budgets = {.most = {100'000, 1 << 30, 1 << 30}},
                       .limits = {.max_tokens = 1 << 20, .max_requests = 1}}) {}
};

// A tenant is charged with its actual time, so it gains nothing by bad predictions.
TEST_F(TurnsTest, TimeBeyondThePredictionIsCharged) {
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

TEST_F(TurnsTest, AFewRequestsOfAModestTenantAreServedAtOnce) {
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

// A tenant of weight 0.001 advances virtual time by a thousand times its service. However large
// virtual time gets, short requests of a tenant of weight 1000 are still charged.
TEST_F(TurnsTest, ShortRequestsAreChargedHoweverLargeVirtualTimeIs) {
  ledger_->SetTenants({{"slow", {.weight = 0.001}}, {"fast", {.weight = 1000}}});
  for (int i = 0; i < 1000; ++i) {
    Push({.ms = 1e8, .tenant = "slow"});
    Run(Next(), 1e8);  // in all 1e17 us of virtual time
  }
  for (int i = 0; i < 2000; ++i) {
    Push({.ms = 0.001, .tenant = "fast"});
    if (i < 4) Push({.ms = 0.001, .tenant = "usual"});
  }
  std::map<std::string, int> turns;
  for (int i = 0; i < 1900; ++i) {
    JobList jobs = Next();
    ++turns[jobs.front()->tenant];
    Run(std::move(jobs), 0.001);
  }
  EXPECT_EQ(turns["usual"], 2) << "one for each thousand";
}

// A request of many slices gives way to others that arrive, and continues in between.
TEST_F(TurnsTest, LongTextsMakeWayForShortOnes) {
  const auto tokenize = [&](const char* tenant, int64_t bytes) {
    auto job = Make({.ms = 1, .tenant = tenant});
    EXPECT_TRUE(ledger_->Admit(*job).ok());
    job->slice_bytes = bytes;
    return *ledger_->Tokenize(std::move(job));
  };
  Ledger::WorkSize size = Ledger::WorkSize::kNothing;
  const Ticket long_one = tokenize("a", 4096);
  for (int i = 0; i < 3; ++i) {
    auto job = ledger_->NextToTokenize(&size);
    EXPECT_EQ(job->ticket, long_one);
    ledger_->TokenizeMore(std::move(job));
  }
  const Ticket short_one = tokenize("a", 10);
  auto job = ledger_->NextToTokenize(&size);
  EXPECT_EQ(job->ticket, short_one);
  ledger_->Tokenized(std::move(job));
  EXPECT_EQ(Tickets(Next()), std::vector<Ticket>{short_one});
  // A cancelled request that waits to be tokenized is answered at once, and leaves nothing behind.
  ledger_->Cancel(long_one);
  const auto answers = TakeAnswers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(ReasonOf(answers.front().second), Reason::kCancelled);
}

// However many texts one tenant sends, another tenant's next text is among the next two.
TEST_F(TurnsTest, TokenizingIsFairBetweenTenants) {
  const auto tokenize = [&](const char* tenant) {
    auto job = Make({.ms = 1, .tenant = tenant});
    EXPECT_TRUE(ledger_->Admit(*job).ok());
    job->slice_bytes = 4096;
    EXPECT_TRUE(ledger_->Tokenize(std::move(job)).ok());
  };
  for (int i = 0; i < 100; ++i) tokenize("greedy");
  Ledger::WorkSize size = Ledger::WorkSize::kNothing;
  for (int i = 0; i < 10; ++i) ledger_->Tokenized(ledger_->NextToTokenize(&size));
  tokenize("modest");
  std::string first, second;
  for (std::string* tenant : {&first, &second}) {
    auto job = ledger_->NextToTokenize(&size);
    *tenant = job->tenant;
    ledger_->Tokenized(std::move(job));
  }
  EXPECT_TRUE(first == "modest" || second == "modest");
}

}  // namespace
}  // namespace castor

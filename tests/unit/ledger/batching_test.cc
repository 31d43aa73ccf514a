// The order and the contents of batches.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/ledger/ledger_fixture.h"

namespace castor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using List = std::vector<Ticket>;

LedgerOptions OptionsWith(BatchLimits limits) {
  return {.budgets = {.most = {1'000'000, 1'000'000'000, 1'000'000'000}}, .limits = limits};
}

class BatchingTest : public LedgerFixture {
 protected:
  explicit BatchingTest(BatchLimits limits = {.max_tokens = 10, .max_requests = 100})
      : LedgerFixture(OptionsWith(limits)) {}
};

Cost Tokens(int64_t tokens) { return {.tokens = tokens}; }

TEST_F(BatchingTest, LooksPastTheHeadWithoutLeavingItBehind) {
  Push({.cost = Tokens(6), .key = "a"});
  Push({.cost = Tokens(1), .key = "b"});
  Push({.cost = Tokens(5), .key = "a"});
  Push({.cost = Tokens(4), .key = "a"});
  Push({.cost = Tokens(1), .key = "b"});
  EXPECT_EQ(Tickets(Next()), (List{1, 4}));
  EXPECT_EQ(Tickets(Next()), (List{2, 5}));
  EXPECT_EQ(Tickets(Next()), (List{3}));
  EXPECT_TRUE(Next().empty());
}

TEST_F(BatchingTest, RunsARequestAboveTheBudgetAlone) {
  Push({.cost = Tokens(11)});
  Push({.cost = Tokens(1)});
  EXPECT_EQ(Tickets(Next()), List{1});
  EXPECT_EQ(Tickets(Next()), List{2});
}

TEST_F(BatchingTest, PriorityThenDeadlineThenArrival) {
  Push({.key = "low", .priority = Priority::kLow});
  Push({.key = "late", .priority = Priority::kNormal});
  Push({.until_ms = 2000, .key = "soon"});
  Push({.key = "latest"});
  Push({.key = "high", .priority = Priority::kHigh});
  for (const Ticket ticket : {5, 3, 2, 4, 1}) EXPECT_EQ(Tickets(Next()), List{ticket});
}

TEST_F(BatchingTest, AnswersWhatHasExpired) {
  for (const double until : {1.0, 1.0, 0.0, 1.0}) Push({.until_ms = until, .key = "b"});
  clock_->Advance(milliseconds(1));  // a deadline of exactly now has passed
  EXPECT_EQ(Tickets(Next()), List{3});
  const auto answers = TakeAnswers();
  ASSERT_EQ(answers.size(), 3u);
  for (const auto& [ticket, status] : answers) {
    EXPECT_EQ(ReasonOf(status), Reason::kDeadlineExceeded) << ticket;
  }
}

class TimedBatchingTest : public BatchingTest {
 protected:
  TimedBatchingTest() : BatchingTest({.max_tokens = 1000, .max_requests = 100}) {}
};

// Requests that join must neither delay others much nor make them late.
TEST_F(TimedBatchingTest, OthersJoinWhileTheBatchIsShort) {
  for (int i = 0; i < 4; ++i) Push({.ms = 2, .batch_ms = 0.01});
  EXPECT_EQ(Tickets(Next()), (List{1, 2})) << "some milliseconds";
  EXPECT_EQ(Next().size(), 2u);
  for (int i = 0; i < 4; ++i) Push({.ms = 5, .batch_ms = 1});
  EXPECT_EQ(Tickets(Next()), (List{5, 6, 7})) << "while its fixed time is more than a 16th";
  Push({.ms = 0.1, .batch_ms = 1});
  Push({.ms = 0.1, .batch_ms = 1});
  Push({.ms = 90, .batch_ms = 1});
  EXPECT_EQ(Tickets(Next()), (List{8, 9, 10})) << "nor a long one";
}

TEST_F(TimedBatchingTest, WithALongQueueBatchesAreLonger) {
  for (int i = 0; i < 100; ++i) Push({.ms = 2, .batch_ms = 0.01});
  EXPECT_EQ(Next().size(), 24u) << "a quarter of it";
  for (int i = 0; i < 9; ++i) Push({.ms = 2, .batch_ms = 0.01, .tenant = "other"});
  EXPECT_EQ(Next().size(), 1u) << "not where tenants take turns";
}

TEST_F(TimedBatchingTest, NoRequestMissesADeadlineForAnother) {
  for (int i = 0; i < 2; ++i) Push({.ms = 1, .until_ms = 60});
  clock_->Advance(microseconds(57'000));
  EXPECT_EQ(Next().size(), 2u);
  for (int i = 0; i < 3; ++i) Push({.ms = 10, .until_ms = 200});
  clock_->Advance(milliseconds(176));
  EXPECT_EQ(Next().size(), 1u) << "two would take 20 ms, of 24, without a margin";
  clock_->Advance(milliseconds(17));
  EXPECT_TRUE(Next().empty()) << "too late to be begun";
  EXPECT_EQ(TakeAnswers().size(), 2u);
}

// The device's memory.
TEST_F(TimedBatchingTest, OthersJoinAsFarAsTheDeviceHasMemory) {
  ledger_->device_memory().SetMost(100);
  Push({.memory = {.own = 10, .shared = 30}});
  Push({.memory = {.own = 50, .shared = 1}});
  Push({.memory = {.own = 11, .shared = 30}});
  Push({.memory = {.own = 10, .shared = 31}});
  Push({.memory = {.own = 1, .shared = 0}});
  EXPECT_EQ(Tickets(Next()), (List{1, 2, 5}));
  EXPECT_EQ(Tickets(Next()), (List{3, 4}));
}

TEST_F(TimedBatchingTest, AtACheckpointTheFirstShortRequestThatFitsPreempts) {
  ledger_->device_memory().SetMost(100);
  Push({.ms = 1000, .memory = {.own = 30}});
  JobList running = Next();
  const Runs::Id run = ledger_->BeginRun(running, /*preempts=*/false);
  EXPECT_FALSE(ledger_->HasPreemptor());
  clock_->Advance(milliseconds(100));
  Push({.ms = 1, .key = "b", .memory = {.own = 80}});
  Push({.ms = 500, .key = "c", .memory = {.own = 10}});
  EXPECT_FALSE(ledger_->HasPreemptor()) << "too large; too long";
  Push({.ms = 10, .key = "d", .memory = {.own = 10}});
  EXPECT_TRUE(ledger_->HasPreemptor());
  EXPECT_EQ(Tickets(ledger_->TakePreemptor()), List{4});
  EXPECT_FALSE(ledger_->HasPreemptor());
  ledger_->EndRun(run, /*completed=*/true);
  EXPECT_EQ(Tickets(Next()), List{2});
}

// Turns between tenants.

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
  for (int left = 101 - 12; left > 0; --left) ledger_->Tokenized(ledger_->NextToTokenize(&size));
}

}  // namespace
}  // namespace castor

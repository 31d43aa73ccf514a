// The ledger's fast searches and sums, against plain scans.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/ledger/tenants.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/ledger/ledger_fixture.h"

namespace castor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// ---- Shares of the budgets.

class ShareTest : public testing::Test, protected Seeded {};

bool QuotaUsedUp(const Tenant& tenant) {
  const Cost quota = QuotaOf(tenant.terms);
  return tenant.in_use.requests >= quota.requests || tenant.in_use.tokens >= quota.tokens ||
         tenant.in_use.bytes >= quota.bytes;
}

TEST_F(ShareTest, IsAsASumOverAllTenants) {
  const auto terms = [&] {
    Tenants::Terms terms;
    for (int i = 0; i < 30; ++i) {
      terms["t" + std::to_string(i)] = {.weight = UpTo(40) / 8.0,
                                        .max_queued_requests = UpTo(3) == 1 ? UpTo(4) : 0};
    }
    return terms;
  };
  Tenants tenants(terms());
  std::map<std::string, TimePoint> refused;
  TimePoint now{std::chrono::hours(1)};
  for (int round = 0; round < Scaled(20'000); ++round) {
    now += milliseconds(UpTo(200) - 1);
    const std::string name = "t" + std::to_string(UpTo(60) - 1);
    Tenant& tenant = tenants.FindOrAdd(name, now);
    switch (UpTo(6)) {
      case 1:
      case 2:
        tenants.Adjust(tenant, {1, UpTo(9), UpTo(9)}, false);
        break;
      case 3:
      case 4:
        tenants.Adjust(tenant, Cost{0, 0, 0} - tenant.in_use, false);
        break;
      case 5:
        tenants.Refuse(tenant, now);
        refused[name] = now;
        break;
      default:
        if (UpTo(50) == 1) tenants.SetTerms(terms());
    }
    double weights = 0;
    for (int i = 0; i < 60; ++i) {
      const std::string other_name = "t" + std::to_string(i);
      const Tenant* const other = tenants.Find(other_name);
      if (other == nullptr) continue;
      const bool asks = !other->idle() || (refused.contains(other_name) &&
                                           now - refused[other_name] <= Tenant::kRecent);
      if (other == &tenant || (asks && !QuotaUsedUp(*other))) weights += other->terms.weight;
    }
    ASSERT_NEAR(tenants.ShareOfBudgets(tenant, now), tenant.terms.weight / weights, 1e-9) << round;
  }
}

TEST_F(ShareTest, TenantsAreForgottenAFewAtATime) {
  Tenants tenants({});
  TimePoint now{std::chrono::hours(1)};
  tenants.Adjust(tenants.FindOrAdd("busy", now), {1, 1, 1}, false);
  const auto known = [&](int from, int to) {
    int count = 0;
    for (int i = from; i < to; ++i) count += tenants.Find(std::to_string(i)) != nullptr ? 1 : 0;
    return count;
  };
  for (int i = 0; i < 10'000; ++i) tenants.Refuse(tenants.FindOrAdd(std::to_string(i), now), now);
  EXPECT_LE(known(0, 10'000), 2 * static_cast<int>(Tenants::kMany)) << "of those that were refused";
  EXPECT_GT(known(9'000, 10'000), 900) << "the oldest go first";
  EXPECT_NEAR(tenants.ShareOfBudgets(*tenants.Find("busy"), now), 1.0 / (1 + known(0, 10'000)),
              1e-9);
  now += Tenant::kRecent + milliseconds(1);
  for (int i = 10'000; i < 12'000; ++i) tenants.FindOrAdd(std::to_string(i), now);
  EXPECT_LE(known(0, 12'000), static_cast<int>(Tenants::kMany));
  for (int i = 0; i < 100; ++i) tenants.ShareOfBudgets(*tenants.Find("busy"), now);
  EXPECT_EQ(tenants.ShareOfBudgets(*tenants.Find("busy"), now), 1);
}

// ---- Preemptors.

// A request that waits. Its tenant has had no service yet.
struct Ready {
  Ticket ticket;
  Rank rank;
  double us;
  int64_t bytes;
};

const LedgerOptions kOptions{.budgets = {.most = {1'000'000, 1'000'000'000, 1'000'000'000}},
                             .limits = {.max_tokens = 1'000'000, .max_requests = 1000}};

class PreemptorTest : public LedgerFixture, protected Seeded {
 protected:
  PreemptorTest() : LedgerFixture(kOptions) {}

  void Wait(Spec spec) {
    auto job = Make(spec);
    ASSERT_TRUE(ledger_->Admit(*job).ok());
    if (!waiting_.contains(spec.tenant)) order_.push_back(spec.tenant);
    waiting_[spec.tenant].push_back(
        {job->ticket, job->rank, job->predicted.alone_us(), job->memory.bytes()});
    ASSERT_TRUE(ledger_->Enqueue(std::move(job)).ok());
  }

  // The first request that may preempt, or 0.
  Ticket Scan(const Runs::PreemptionLimit& limit, int64_t free_bytes) {
    for (const std::string& tenant : order_) {
      std::vector<Ready>& ready = waiting_[tenant];
      std::sort(ready.begin(), ready.end(),
                [](const Ready& a, const Ready& b) { return a.rank < b.rank; });
      for (const Ready& job : ready) {
        const bool is_short =
            job.us <= limit.MostUsOf(tenant) && job.us <= limit.MostUs(tenant, job.us);
        if (is_short && job.bytes <= free_bytes) return job.ticket;
      }
    }
    return 0;
  }

  std::vector<std::string> order_;  // tenants in the order of their arrival
  std::map<std::string, std::vector<Ready>> waiting_;
};

TEST_F(PreemptorTest, IsTheFirstThatAScanOfAllFinds) {
  constexpr int64_t kMemory = 1000;
  int found = 0, none = 0;
  for (int round = 0; round < Scaled(60); ++round) {
    SCOPED_TRACE(round);
    ledger_ = std::make_shared<Ledger>(kOptions, clock_, counters_);
    ledger_->device_memory().SetMost(kMemory);
    order_.clear();
    waiting_.clear();
    const double run_ms = 20 * UpTo(40);
    Push({.ms = run_ms, .tenant = "run", .key = "run", .memory = {.own = 100}});
    JobList run = Next();
    ASSERT_EQ(run.size(), 1u);
    const RunPlan plan{.predicted_us = run_ms * 1e3,
                       .longest_us = run_ms * 1e3,
                       .tenant = "run",
                       .fair_midpoint = run.front()->fair_midpoint,
                       .device_bytes = 100};
    Runs runs;
    runs.Begin(plan, clock_->Now());
    ledger_->BeginRun(run, /*preempts=*/false);

    const int tenants = UpTo(round % 3 == 0 ? 300 : 3);
    const double shortest_ms = UpTo(3) == 1 ? 1 : run_ms / UpTo(8);
    for (int i = UpTo(1000); i > 0; --i) {
      const int tenant = UpTo(tenants);
      Wait({.ms = shortest_ms * UpTo(20),
            .tenant = tenant == 1 && round % 2 == 0 ? "run" : "t" + std::to_string(tenant),
            .key = std::to_string(UpTo(5)),
            .priority = UpTo(3) == 1 ? Priority::kHigh : Priority::kNormal,
            .memory = {.own = UpTo(4) * 250}});
    }
    // The run's tenant has had its turn.
    std::stable_partition(order_.begin(), order_.end(), [](const auto& t) { return t != "run"; });
    clock_->Advance(microseconds(static_cast<int64_t>(1e3 * run_ms * UpTo(10) / 12)));
    const Ticket expected = Scan(runs.LimitNow(clock_->Now()), kMemory - 100);
    (expected == 0 ? none : found) += 1;
    EXPECT_EQ(ledger_->HasPreemptor(), expected != 0);
    JobList preemptor = ledger_->TakePreemptor();
    EXPECT_EQ(preemptor.empty() ? 0 : preemptor.front()->ticket, expected);
    if (!preemptor.empty()) AnswerAll(std::move(preemptor));
    AnswerAll(std::move(run));
    ledger_->RefuseWaiting();
    TakeAnswers();
  }
  EXPECT_GE(found, Scaled(6));
  EXPECT_GE(none, Scaled(6));
}

TEST_F(PreemptorTest, TheLastOfManyIsFound) {
  Push({.ms = 1000, .tenant = "run", .key = "run"});
  JobList run = Next();
  ledger_->BeginRun(run, /*preempts=*/false);
  for (int i = 0; i < 12'000; ++i) {
    Push({.ms = 900.0 + i % 7, .tenant = std::to_string(i % 1024)});
    if (i % 1000 == 0) {
      EXPECT_FALSE(ledger_->HasPreemptor());
    }
  }
  Push({.ms = 1, .tenant = std::to_string(1023), .priority = Priority::kLow});
  EXPECT_TRUE(ledger_->HasPreemptor());
  JobList preemptor = ledger_->TakePreemptor();
  ASSERT_EQ(Tickets(preemptor), std::vector<Ticket>{12'002});
  AnswerAll(std::move(preemptor));
  AnswerAll(std::move(run));
  EXPECT_FALSE(ledger_->HasPreemptor());
  ledger_->RefuseWaiting();
  TakeAnswers();
}

}  // namespace
}  // namespace castor

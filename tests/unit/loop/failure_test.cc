// What happens to the requests of a failed batch.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "engine/loop/engine_loop.h"
#include "tests/unit/ledger/ledger_fixture.h"

namespace castor {
namespace {

using List = std::vector<Ticket>;

TEST(FailureTest, HalvesOnOutOfMemoryAndSplitsOnOtherErrors) {
  const auto batch = [](int count) {
    JobList jobs;
    for (int i = 1; i <= count; ++i) {
      jobs.push_back(std::make_unique<Job>());
      jobs.back()->ticket = static_cast<Ticket>(i);
    }
    return jobs;
  };
  AfterFailure plan = PlanRetries(batch(5), MakeError(Reason::kOutOfMemory, ""));
  ASSERT_EQ(plan.retries.size(), 2u);
  EXPECT_EQ(Tickets(plan.retries[0]), (List{1, 2}));
  EXPECT_EQ(Tickets(plan.retries[1]), (List{3, 4, 5}));
  EXPECT_TRUE(plan.refused.empty());

  plan = PlanRetries(batch(1), MakeError(Reason::kOutOfMemory, ""));
  EXPECT_TRUE(plan.retries.empty());
  EXPECT_EQ(Tickets(plan.refused), List{1});

  plan = PlanRetries(batch(2), MakeError(Reason::kInternal, ""));
  ASSERT_EQ(plan.retries.size(), 2u);
  plan = PlanRetries(std::move(plan.retries[1]), MakeError(Reason::kInternal, ""));
  EXPECT_TRUE(plan.retries.empty());
  EXPECT_EQ(Tickets(plan.refused), List{2});
}

}  // namespace
}  // namespace castor

// The queue: its order, and when each group is due.
#include "engine/scheduling/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/seeded.h"
#include "tests/support/tenant_weights.h"
#include "tests/unit/scheduling/queue_jobs.h"

namespace castor {
namespace {

using std::chrono::microseconds;
using List = std::vector<Ticket>;

TEST(QueueTest, OrdersByPriorityThenArrival) {
  Queue queue(kNoDelay);
  queue.Push(MakeJob(1, "a", 1, Priority::kLow));
  queue.Push(MakeJob(4, "b", 1, Priority::kNormal));
  queue.Push(MakeJob(2, "a", 1, Priority::kHigh));
  queue.Push(MakeJob(3, "b", 1, Priority::kNormal));
  queue.Push(MakeJob(5, "c", 1, Priority::kHigh));
  EXPECT_EQ(queue.size(), 5u);
  JobList jobs;
  while (!queue.empty()) jobs.push_back(queue.Remove(FirstOf(queue)));
  EXPECT_EQ(Tickets(jobs), (List{2, 5, 3, 4, 1}));
}

// The slow twin of Queue: a plain map of all jobs, searched in full.
class SlowQueue {
 public:
  explicit SlowQueue(BatchLimits limits) : limits_(limits) {}

  std::map<Rank, const Job*>& jobs() { return jobs_; }

  struct Group {
    const Job* head;
    size_t size = 0;
    int64_t tokens = 0;
  };
  std::map<std::string, Group> Groups() const {
    std::map<std::string, Group> groups;
    for (const auto& [rank, job] : jobs_) {
      Group& group = groups.try_emplace(job->batch_key, Group{job}).first->second;
      ++group.size;
      group.tokens += job->tokens;
    }
    return groups;
  }

  TimePoint DueAt(const Group& group) const {
    const bool full = group.tokens >= limits_.max_tokens ||
                      static_cast<int64_t>(group.size) >= limits_.max_requests;
    return full || limits_.delay->count() == 0 ? TimePoint::min()
                                               : group.head->queued + *limits_.delay;
  }

  // Over all groups: the earliest due time; and, of those due at `now`, the first by rank (or null)
  // with its tokens.
  std::tuple<TimePoint, const Job*, int64_t> Look(TimePoint now) const {
    TimePoint due = TimePoint::max();
    Group first{nullptr};
    for (const auto& [key, group] : Groups()) {
      due = std::min(due, DueAt(group));
      if (DueAt(group) > now) continue;
      if (first.head == nullptr || group.head->rank < first.head->rank) first = group;
    }
    return {due, first.head, first.tokens};
  }

 private:
  const BatchLimits limits_;
  std::map<Rank, const Job*> jobs_;
};

TEST(QueueTest, AgreesWithASortedListUnderRandomUse) {
  const unsigned seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const microseconds delay : {microseconds(0), microseconds(50)}) {
    const BatchLimits limits = {.max_tokens = 30, .max_requests = 8, .delay = delay};
    Queue queue(limits);
    SlowQueue twin(limits);
    TimePoint now = kNow;
    for (Ticket ticket = 1; ticket <= 3000; ++ticket) {
      auto job = MakeJob(ticket, std::string(1, static_cast<char>('a' + random() % 9)),
                         1 + random() % 6, static_cast<Priority>(random() % 3), now);
      twin.jobs().emplace(job->rank, job.get());
      queue.Push(std::move(job));
      while (!twin.jobs().empty() && random() % 2 == 0) {
        auto victim = twin.jobs().begin();
        std::advance(victim, random() % twin.jobs().size());
        const auto removed = queue.Remove(*victim->second);
        ASSERT_EQ(removed.get(), victim->second);
        twin.jobs().erase(victim);
      }
      now += microseconds(random() % 20);
      ASSERT_EQ(queue.size(), twin.jobs().size());
      const auto [due, head, tokens] = twin.Look(now);
      // Once a group is due, DueAt may return the time when it became due, or "always".
      ASSERT_TRUE(queue.DueAt() == due || (queue.DueAt() <= now && due <= now));
      if (random() % 4 == 0) continue;  // no look this time
      const Job* const first = queue.FirstDue(now);
      ASSERT_EQ(first, head);
      if (first == nullptr) continue;
      ASSERT_EQ(queue.GroupOf(*first).tokens, tokens);
    }
  }
}

TEST(QueueTest, IsDueWhenAGroupIsFullOrItsHeadHasWaited) {
  Queue queue(kDelayed);
  EXPECT_EQ(queue.DueAt(), TimePoint::max());
  EXPECT_EQ(queue.FirstDue(kNow), nullptr);
  queue.Push(MakeJob(1, "a", 4));
  queue.Push(MakeJob(2, "b", 9));
  EXPECT_EQ(queue.DueAt(), kNow + kDelay);
  queue.Push(MakeJob(3, "a", 4));
  EXPECT_EQ(queue.DueAt(), kNow + kDelay);
  EXPECT_EQ(queue.FirstDue(kNow + kDelay - microseconds(1)), nullptr);
  queue.Push(MakeJob(4, "a", 1));
  EXPECT_EQ(queue.DueAt(), TimePoint::min());  // three requests
}

TEST(QueueTest, AFullGroupIsDueBehindAYoungHead) {
  Queue queue(kDelayed);
  queue.Push(MakeJob(1, "a", 1, Priority::kHigh));
  queue.Push(MakeJob(2, "b", 9));
  EXPECT_EQ(queue.DueAt(), kNow + kDelay);
  queue.Push(MakeJob(3, "b", 1));
  EXPECT_EQ(queue.DueAt(), TimePoint::min());
  EXPECT_EQ(FirstOf(queue).ticket, 2u);
  const auto removed = queue.Remove(FirstOf(queue));  // the rest counts as young again
  EXPECT_EQ(queue.DueAt(), kNow + kDelay);
  EXPECT_EQ(queue.FirstDue(kNow), nullptr);
}

TEST(QueueTest, EveryGroupsHeadWaitsForItsOwnDelay) {
  Queue queue(kDelayed);
  queue.Push(MakeJob(1, "a", 1, Priority::kLow, kNow));
  queue.Push(MakeJob(2, "b", 1, Priority::kHigh, kNow + microseconds(300)));
  EXPECT_EQ(queue.DueAt(), kNow + kDelay) << "the first that will be due, not the first by rank";
  EXPECT_EQ(queue.FirstDue(kNow + kDelay)->ticket, 1u);
  EXPECT_EQ(queue.FirstDue(kNow + kDelay + microseconds(300))->ticket, 2u);
}

TEST(QueueTest, TenantsTakeTurns) {
  Queue queue(kNoDelay, Weighted({{"heavy", 2}}));
  const auto push = [&](Ticket ticket, std::string tenant) {
    auto job = MakeJob(ticket, "a");
    job->tenant = std::move(tenant);
    queue.Push(std::move(job));
  };
  for (Ticket ticket = 1; ticket <= 6; ++ticket) push(ticket, "greedy");
  push(7, "modest");
  push(8, "modest");
  for (Ticket ticket = 9; ticket <= 12; ++ticket) push(ticket, "heavy");
  std::string order;
  while (!queue.empty()) {
    const Job& first = FirstOf(queue);
    queue.Begin(first);
    queue.Charge(first, 100);
    order += queue.Remove(first)->tenant[0];
  }
  EXPECT_EQ(order, "gmhhgmhhgggg");
}

TEST(QueueTest, FindsTheFirstThatIsShortEnough) {
  Queue queue(kNoDelay);
  for (const auto& [ticket, us] : {std::pair<Ticket, double>{1, 100}, {2, 7}, {3, 5}}) {
    auto job = MakeJob(ticket, "a");
    job->predicted.own_us = us;
    queue.Push(std::move(job));
  }
  EXPECT_EQ(queue.FirstDue(kNow)->ticket, 1u);
  EXPECT_EQ(queue.FirstDue(kNow, {.passage = {.most_us = 7}})->ticket, 2u);
  EXPECT_EQ(queue.FirstDue(kNow, {.passage = {.most_us = 6}})->ticket, 3u);
  EXPECT_EQ(queue.FirstDue(kNow, {.passage = {.most_us = 4}}), nullptr);
}

// Of a model: a batch pays 4 ms, and each request 500 us.
std::unique_ptr<Job> Text(Ticket ticket, TimePoint at, std::optional<TimePoint> deadline = {}) {
  auto job = MakeJob(ticket, "model", 1, Priority::kNormal, at);
  job->predicted = {.batch_us = 4000, .own_us = 500};
  job->deadline = deadline;
  return job;
}

class WaitingQueueTest : public ::testing::Test {
 protected:
  // Two callers that send their next requests 200 us apart have taught the queue to wait.
  WaitingQueueTest() {
    for (Ticket ticket = 1; ticket <= 40; ticket += 2) {
      const Job& first = Push(ticket);
      queue_.FirstDue(now_);
      Elapse(200);
      const Job& second = Push(ticket + 1);
      queue_.FirstDue(now_);
      Elapse(10'000);
      queue_.Remove(first);
      queue_.Remove(second);
    }
  }

  void Elapse(int64_t us) { now_ += microseconds(us); }
  const Job& Push(Ticket ticket) {
    auto job = Text(ticket, now_);
    const Job& pushed = *job;
    queue_.Push(std::move(job));
    return pushed;
  }
  Ticket First() {
    const Job* const first = queue_.FirstDue(now_);
    return first == nullptr ? 0 : first->ticket;
  }

  Queue queue_{{.max_tokens = 10, .max_requests = 4, .delay = std::nullopt}};
  TimePoint now_ = kNow;
};

TEST_F(WaitingQueueTest, WaitsForCompanyThatMostlyComes) {
  Push(1000);
  EXPECT_EQ(queue_.DueAt(), TimePoint::min()) << "nobody has decided yet";
  EXPECT_EQ(First(), 0u);
  EXPECT_GE(queue_.DueAt(), now_ + microseconds(200));
  EXPECT_LE(queue_.DueAt(), now_ + microseconds(1750));
  Elapse(200);
  Push(1001);
  EXPECT_EQ(queue_.DueAt(), TimePoint::min()) << "a third never came";
  EXPECT_EQ(First(), 1000u);
}

TEST_F(WaitingQueueTest, DoesNotWaitForLong) {
  Push(1000);
  ASSERT_EQ(First(), 0u);
  now_ = queue_.DueAt();
  EXPECT_EQ(First(), 1000u);
  EXPECT_EQ(queue_.DueAt(), TimePoint::min()) << "it is decided";
}

TEST_F(WaitingQueueTest, OthersGoAheadMeanwhile) {
  Push(1000);
  ASSERT_EQ(First(), 0u);
  queue_.Push(MakeJob(1001, "other"));
  EXPECT_EQ(queue_.DueAt(), TimePoint::min());
  EXPECT_EQ(First(), 1001u);
}

TEST_F(WaitingQueueTest, DoesNotWaitWithANearDeadline) {
  queue_.Push(Text(1000, now_, now_ + microseconds(9000)));
  EXPECT_EQ(First(), 1000u);
}

TEST_F(WaitingQueueTest, DoesNotWaitWhenItIsFull) {
  for (Ticket ticket = 1000; ticket < 1004; ++ticket) Push(ticket);
  EXPECT_EQ(First(), 1000u);
}

TEST_F(WaitingQueueTest, DoesNotWaitWhenItDrains) {
  Push(1000);
  ASSERT_EQ(First(), 0u);
  queue_.EndDelay();
  EXPECT_EQ(queue_.DueAt(), TimePoint::min());
  EXPECT_EQ(First(), 1000u);
}

TEST_F(WaitingQueueTest, UnlearnsWhatIsTrueNoMore) {
  int waits = 0;
  for (Ticket ticket = 1000; ticket < 1050; ++ticket) {
    Elapse(10'000);
    const Job& job = Push(ticket);
    waits += First() == 0;
    queue_.Remove(job);
  }
  EXPECT_GE(waits, 1);
  EXPECT_LE(waits, 25) << "each of some 300 us, where company would save ten times as much";
}

TEST(QueueTest, WithoutADelayOrAfterItsEndTheFirstByRankIsDue) {
  Queue queue(kDelayed);
  queue.Push(MakeJob(1, "a", 1, Priority::kLow));
  queue.Push(MakeJob(2, "b", 1));
  queue.Push(MakeJob(3, "c", 10, Priority::kLow));  // full
  EXPECT_EQ(FirstOf(queue).ticket, 3u);
  queue.EndDelay();
  EXPECT_EQ(queue.DueAt(), TimePoint::min());
  EXPECT_EQ(FirstOf(queue).ticket, 2u);
  queue.Push(MakeJob(4, "d", 1, Priority::kHigh));
  EXPECT_EQ(FirstOf(queue).ticket, 4u);
}

}  // namespace
}  // namespace castor

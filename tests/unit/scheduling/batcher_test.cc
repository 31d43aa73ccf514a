// The queue, its order, and how batches are formed from it.
#include "engine/scheduling/batcher.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/jobs/batch_key.h"
#include "engine/scheduling/failure.h"

namespace castor {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

const TimePoint kNow = TimePoint(seconds(1000));

std::unique_ptr<Job> MakeJob(Ticket ticket, std::string key, int64_t tokens = 1,
                             Priority priority = Priority::kNormal) {
  auto job = std::make_unique<Job>();
  job->ticket = ticket;
  job->batch_key = std::move(key);
  job->tokens = tokens;
  job->priority = priority;
  job->queued = kNow;
  return job;
}

std::vector<Ticket> Tickets(const JobList& jobs) {
  std::vector<Ticket> tickets;
  for (const auto& job : jobs) tickets.push_back(job->ticket);
  return tickets;
}

using List = std::vector<Ticket>;

TEST(QueueTest, OrdersByPriorityThenArrival) {
  Queue queue;
  queue.Push(MakeJob(1, "a", 1, Priority::kLow));
  queue.Push(MakeJob(4, "b", 1, Priority::kNormal));
  queue.Push(MakeJob(2, "a", 1, Priority::kHigh));
  queue.Push(MakeJob(3, "b", 1, Priority::kNormal));
  queue.Push(MakeJob(5, "c", 1, Priority::kHigh));
  EXPECT_EQ(queue.size(), 5u);
  JobList jobs;
  while (!queue.empty()) jobs.push_back(queue.Remove(queue.FirstGroup().head()));
  EXPECT_EQ(Tickets(jobs), (List{2, 5, 3, 4, 1}));
}

// The slow twin: a plain map of everything, searched in full.
TEST(QueueTest, AgreesWithASortedListUnderRandomUse) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Queue queue;
  std::map<Rank, const Job*> twin;
  for (Ticket ticket = 1; ticket <= 5000; ++ticket) {
    auto job = MakeJob(ticket, std::string(1, static_cast<char>('a' + random() % 5)), 1,
                       static_cast<Priority>(random() % 3));
    twin.emplace(RankOf(*job), job.get());
    queue.Push(std::move(job));
    while (!twin.empty() && random() % 2 == 0) {
      auto victim = twin.begin();
      std::advance(victim, random() % twin.size());
      const auto removed = queue.Remove(*victim->second);
      ASSERT_EQ(removed.get(), victim->second);
      twin.erase(victim);
    }
    ASSERT_EQ(queue.size(), twin.size());
    if (!twin.empty()) {
      ASSERT_EQ(&queue.FirstGroup().head(), twin.begin()->second);
      int64_t tokens = 0;
      for (const auto& [rank, other] : twin) {
        if (other->batch_key == twin.begin()->second->batch_key) tokens += other->tokens;
      }
      ASSERT_EQ(queue.FirstGroup().tokens, tokens);
    }
  }
}

TEST(BatcherTest, LooksPastTheHeadWithoutLeavingItBehind) {
  const Batcher batcher({.max_tokens = 10, .max_requests = 100});
  Queue queue;
  queue.Push(MakeJob(1, "a", 6));
  queue.Push(MakeJob(2, "b", 1));
  queue.Push(MakeJob(3, "a", 5));
  queue.Push(MakeJob(4, "a", 4));
  queue.Push(MakeJob(5, "b", 1));
  JobList expired;
  EXPECT_EQ(Tickets(batcher.Form(queue, kNow, &expired)), (List{1, 4}));
  EXPECT_EQ(Tickets(batcher.Form(queue, kNow, &expired)), (List{2, 5}));
  EXPECT_EQ(Tickets(batcher.Form(queue, kNow, &expired)), (List{3}));
  EXPECT_TRUE(batcher.Form(queue, kNow, &expired).empty());
  EXPECT_TRUE(expired.empty());
}

TEST(BatcherTest, RunsARequestAboveTheBudgetAlone) {
  const Batcher batcher({.max_tokens = 10, .max_requests = 100});
  Queue queue;
  queue.Push(MakeJob(1, "a", 11));
  queue.Push(MakeJob(2, "a", 1));
  JobList expired;
  EXPECT_EQ(Tickets(batcher.Form(queue, kNow, &expired)), List{1});
  EXPECT_EQ(Tickets(batcher.Form(queue, kNow, &expired)), List{2});
}

TEST(BatcherTest, DropsWhatHasExpired) {
  const Batcher batcher({.max_tokens = 10, .max_requests = 100});
  Queue queue;
  for (Ticket ticket = 1; ticket <= 4; ++ticket) {
    auto job = MakeJob(ticket, ticket == 1 ? "a" : "b");
    if (ticket != 3) job->deadline = kNow;  // the very moment counts as passed
    queue.Push(std::move(job));
  }
  JobList expired;
  EXPECT_EQ(Tickets(batcher.Form(queue, kNow, &expired)), List{3});
  EXPECT_EQ(Tickets(expired), (List{1, 2, 4}));
}

TEST(BatcherTest, IsDueWhenFullOrAfterTheDelay) {
  const Batcher batcher({.max_tokens = 10, .max_requests = 3, .delay = microseconds(500)});
  Queue queue;
  EXPECT_EQ(batcher.DueAt(queue), TimePoint::max());
  queue.Push(MakeJob(1, "a", 4));
  queue.Push(MakeJob(2, "b", 9));
  EXPECT_EQ(batcher.DueAt(queue), kNow + microseconds(500));
  queue.Push(MakeJob(3, "a", 4));
  EXPECT_EQ(batcher.DueAt(queue), kNow + microseconds(500));
  queue.Push(MakeJob(4, "a", 1));
  EXPECT_EQ(batcher.DueAt(queue), TimePoint::min());  // three requests
}

// Whatever arrives, the first request always travels in the next batch.
TEST(BatcherTest, NeverStarvesTheHead) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Batcher batcher({.max_tokens = 50, .max_requests = 8});
  Queue queue;
  Ticket next = 1;
  for (int round = 0; round < 2000; ++round) {
    for (uint32_t i = random() % 8; i > 0; --i) {
      queue.Push(MakeJob(next++, std::string(1, static_cast<char>('a' + random() % 3)),
                         1 + random() % 60));
    }
    if (queue.empty()) continue;
    const Ticket head = queue.FirstGroup().head().ticket;
    const std::string key = queue.FirstGroup().head().batch_key;
    JobList expired;
    const JobList batch = batcher.Form(queue, kNow, &expired);
    ASSERT_EQ(batch.front()->ticket, head);
    ASSERT_LE(batch.size(), 8u);
    int64_t tokens = 0;
    for (const auto& job : batch) {
      ASSERT_EQ(job->batch_key, key);
      tokens += job->tokens;
    }
    ASSERT_TRUE(tokens <= 50 || batch.size() == 1) << tokens;
  }
}

TEST(BatchKeyTest, TellsApartWhateverALaunchHasInCommon) {
  attention::Spec base;
  base.heads = 2;
  base.head_dim = 64;
  base.value_dim = 64;
  base.softmax_scale = 0.125;
  EXPECT_EQ(BatchKey(base), BatchKey(base));
  std::vector<attention::Spec> specs(20, base);
  specs[1].dtype = DType::kBFloat16;
  specs[2].heads = 3;
  specs[3].head_dim = 32;
  specs[4].value_dim = 32;
  specs[5].softmax_scale = 0.25;
  specs[6].kernel = Vanilla{.causal = true};
  specs[7].kernel = Clustered{};
  specs[8].kernel = ImprovedClustered{};
  Clustered clustered;
  const auto vary = [&](size_t at, auto change) {
    Clustered changed = clustered;
    change(changed);
    specs[at].kernel = changed;
  };
  vary(9, [](Clustered& kernel) { kernel.clusters = 7; });
  vary(10, [](Clustered& kernel) { kernel.iterations = 7; });
  vary(11, [](Clustered& kernel) { kernel.bits = 7; });
  vary(12, [](Clustered& kernel) { kernel.hash_bias = false; });
  vary(13, [](Clustered& kernel) { kernel.seed = 7; });
  ImprovedClustered improved;
  improved.topk = 7;
  specs[14].kernel = improved;
  Cast cast;
  cast.surrogates = std::string("model/1");
  specs[15].kernel = cast;
  cast.surrogates = std::string("model/2");
  specs[16].kernel = cast;
  cast.cluster_size = 7;
  specs[17].kernel = cast;
  cast.attention_function = Cast::AttentionFunction::kLaplace;
  specs[18].kernel = cast;
  cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
  specs[19].kernel = cast;
  for (size_t a = 0; a < specs.size(); ++a) {
    for (size_t b = a + 1; b < specs.size(); ++b) {
      EXPECT_NE(BatchKey(specs[a]), BatchKey(specs[b])) << a << " and " << b;
    }
  }
  const auto* model = reinterpret_cast<const encoder::Model*>(&base);
  EXPECT_NE(BatchKey(model, Vanilla{}), BatchKey(nullptr, Vanilla{}));
  EXPECT_NE(BatchKey(model, Vanilla{}), BatchKey(model, Clustered{}));
}

TEST(FailureTest, HalvesOnOutOfMemoryAndSplitsOnOtherErrors) {
  const auto batch = [](int count) {
    JobList jobs;
    for (int i = 1; i <= count; ++i) jobs.push_back(MakeJob(static_cast<Ticket>(i), "a"));
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

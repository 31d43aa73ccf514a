// How batches are formed, what may share one, and what happens to requests of a failed one.
#include "engine/scheduling/batcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/jobs/batch_key.h"
#include "engine/scheduling/failure.h"
#include "tests/support/seeded.h"
#include "tests/unit/scheduling/queue_jobs.h"

namespace castor {
namespace {

using std::chrono::microseconds;
using List = std::vector<Ticket>;

TEST(BatcherTest, LooksPastTheHeadWithoutLeavingItBehind) {
  Queue queue(kNoDelay);
  queue.Push(MakeJob(1, "a", 6));
  queue.Push(MakeJob(2, "b", 1));
  queue.Push(MakeJob(3, "a", 5));
  queue.Push(MakeJob(4, "a", 4));
  queue.Push(MakeJob(5, "b", 1));
  JobList expired;
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), (List{1, 4}));
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), (List{2, 5}));
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), (List{3}));
  EXPECT_TRUE(FormBatch(queue, kNow, &expired).empty());
  EXPECT_TRUE(expired.empty());
}

TEST(BatcherTest, RunsARequestAboveTheBudgetAlone) {
  Queue queue(kNoDelay);
  queue.Push(MakeJob(1, "a", 11));
  queue.Push(MakeJob(2, "a", 1));
  JobList expired;
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), List{1});
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), List{2});
}

TEST(BatcherTest, DropsWhatHasExpired) {
  Queue queue(kNoDelay);
  for (Ticket ticket = 1; ticket <= 4; ++ticket) {
    auto job = MakeJob(ticket, ticket == 1 ? "a" : "b");
    if (ticket != 3) job->deadline = kNow;  // a deadline of exactly now has passed
    queue.Push(std::move(job));
  }
  JobList expired;
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), List{3});
  EXPECT_EQ(Tickets(expired), (List{1, 2, 4}));
}

TEST(BatcherTest, TakesOfTheGroupsThatAreDueTheFirstByRank) {
  Queue queue(kDelayed);
  queue.Push(MakeJob(1, "young", 1, Priority::kHigh, kNow + kDelay));
  queue.Push(MakeJob(2, "waited", 1, Priority::kNormal, kNow));
  for (Ticket ticket : {3, 4, 5}) queue.Push(MakeJob(ticket, "full", 1, Priority::kNormal, kNow));
  JobList expired;
  EXPECT_EQ(Tickets(FormBatch(queue, kNow + kDelay, &expired)), List{2});
  EXPECT_EQ(Tickets(FormBatch(queue, kNow + kDelay, &expired)), (List{3, 4, 5}));
  EXPECT_TRUE(FormBatch(queue, kNow + kDelay, &expired).empty());
  EXPECT_EQ(queue.size(), 1u) << "the young one waits for company";
  EXPECT_EQ(Tickets(FormBatch(queue, kNow + 2 * kDelay, &expired)), List{1});
}

// Whom company would hold up, or make late.
TEST(BatcherTest, CompanyJoinsWhileTheBatchIsShort) {
  const auto timed = [](Ticket ticket, double batch_us, double own_us) {
    auto job = MakeJob(ticket, "a");
    job->predicted = {.batch_us = batch_us, .own_us = own_us};
    return job;
  };
  JobList expired;
  Queue queue({.max_tokens = 100, .max_requests = 100});
  for (Ticket ticket = 1; ticket <= 4; ++ticket) queue.Push(timed(ticket, 10, 2000));
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), (List{1, 2})) << "some milliseconds";
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired, {.passage = {.most_us = 3000}})), List{3})
      << "no longer than asked";
  EXPECT_TRUE(FormBatch(queue, kNow, &expired, {.passage = {.most_us = 1000}}).empty());
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), List{4});

  for (Ticket ticket = 1; ticket <= 4; ++ticket) queue.Push(timed(ticket, 1000, 5000));
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), (List{1, 2, 3}))
      << "while what the batch pays once is more than a 16th";
  queue.Push(timed(5, 1000, 100));
  queue.Push(timed(6, 1000, 100));
  queue.Push(timed(7, 1000, 90'000));
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), (List{4, 5, 6})) << "nor a long one";
}

TEST(BatcherTest, NobodyMissesADeadlineForCompany) {
  const auto timed = [](Ticket ticket, int milliseconds) {
    auto job = MakeJob(ticket, "a");
    job->predicted.own_us = 1000;
    job->deadline = kNow + std::chrono::milliseconds(milliseconds);
    job->rank = RankOf(Priority::kNormal, job->deadline, kNow, ticket);
    return job;
  };
  Queue queue({.max_tokens = 100, .max_requests = 100});
  for (const Ticket ticket : {1, 2, 3, 4}) queue.Push(timed(ticket, 3));
  JobList expired;
  EXPECT_EQ(FormBatch(queue, kNow, &expired).size(), 2u);
  EXPECT_EQ(FormBatch(queue, kNow + microseconds(2500), &expired).size(), 0u);
  EXPECT_EQ(expired.size(), 2u) << "too late to be begun";
  auto tried = timed(5, 3);
  tried->predicted.correction = 2;
  queue.Push(std::move(tried));
  EXPECT_EQ(FormBatch(queue, kNow + microseconds(2500), &expired).size(), 1u)
      << "in time if what was learned is wrong";
}

// Whatever arrives, the first due request always travels in the next batch.
TEST(BatcherTest, NeverStarvesTheHead) {
  const unsigned seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Queue queue({.max_tokens = 50, .max_requests = 8});
  Ticket next = 1;
  for (int round = 0; round < 2000; ++round) {
    for (uint32_t i = random() % 8; i > 0; --i) {
      queue.Push(MakeJob(next++, std::string(1, static_cast<char>('a' + random() % 3)),
                         1 + random() % 60));
    }
    if (queue.empty()) continue;
    const Ticket head = FirstOf(queue).ticket;
    const std::string key = FirstOf(queue).batch_key;
    JobList expired;
    const JobList batch = FormBatch(queue, kNow, &expired);
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

// Groups that are full again whenever the device becomes free overtake a lonely request only until
// its delay is over. After that it goes first.
TEST(BatcherTest, FullGroupsDoNotStarveALonelyRequest) {
  Queue queue(kDelayed);
  queue.Push(MakeJob(1, "lonely"));
  Ticket next = 2;
  int batches_before = 0;
  for (TimePoint now = kNow;; now += microseconds(100)) {
    for (const char* key : {"a", "b"}) {
      for (int i = 0; i < 3; ++i) queue.Push(MakeJob(next++, key, 1, Priority::kNormal, now));
    }
    JobList expired;
    const JobList batch = FormBatch(queue, now, &expired);
    ASSERT_FALSE(batch.empty());
    if (batch.front()->ticket == 1) break;
    ASSERT_LT(now, kNow + kDelay);
    ++batches_before;
  }
  EXPECT_EQ(batches_before, 5);
}

TEST(BatchKeyTest, TellsApartWhateverALaunchHasInCommon) {
  attention::Spec base;
  base.heads = 2;
  base.head_dim = 64;
  base.value_dim = 64;
  base.softmax_scale = 0.125;
  EXPECT_EQ(BatchKey(base), BatchKey(base));
  std::vector<attention::Spec> specs(23, base);
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
  specs[20].kernel = cast;
  specs[20].generation = 7;
  vary(21, [](Clustered& kernel) { kernel.clustering = Clustered::Clustering::kQuerySpace; });
  improved.rest_mass = ImprovedClustered::RestMass::kQuery;
  specs[22].kernel = improved;
  for (size_t a = 0; a < specs.size(); ++a) {
    for (size_t b = a + 1; b < specs.size(); ++b) {
      EXPECT_NE(BatchKey(specs[a]), BatchKey(specs[b])) << a << " and " << b;
    }
  }
  EXPECT_EQ(BatchKey(1, Vanilla{}), BatchKey(1, Vanilla{}));
  EXPECT_NE(BatchKey(1, Vanilla{}), BatchKey(2, Vanilla{}));
  EXPECT_NE(BatchKey(1, Vanilla{}), BatchKey(1, Clustered{}));
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

// The device's memory.

std::unique_ptr<Job> Needing(Ticket ticket, MemoryNeed memory) {
  auto job = MakeJob(ticket, "a");
  job->memory = memory;
  return job;
}

TEST(BatcherTest, CompanyJoinsAsFarAsTheDeviceHasMemory) {
  Queue queue({.max_tokens = 100, .max_requests = 100});
  queue.Push(Needing(1, {.own = 10, .shared = 30}));
  queue.Push(Needing(2, {.own = 50, .shared = 1}));
  queue.Push(Needing(3, {.own = 11, .shared = 30}));
  queue.Push(Needing(4, {.own = 10, .shared = 31}));
  queue.Push(Needing(5, {.own = 200, .shared = 0}));
  queue.Push(Needing(6, {.own = 1, .shared = 0}));
  JobList expired;
  const Opening idle{.free_bytes = 100};
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired, idle)), (List{1, 2, 6}));
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired, idle)), (List{3, 4}));
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired, idle)), List{5}) << "nothing else runs";
}

TEST(BatcherTest, BehindARunTheFirstWaitsUntilItFitsAndIsNotOvertaken) {
  Queue queue({.max_tokens = 100, .max_requests = 100});
  queue.Push(Needing(1, {.own = 80}));
  queue.Push(Needing(2, {.own = 10}));
  JobList expired;
  Opening second{.beside = Opening::Beside::kLaunch, .free_bytes = 79};
  EXPECT_TRUE(FormBatch(queue, kNow, &expired, second).empty());
  second.free_bytes = 80;
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired, second)), List{1});
}

TEST(BatcherTest, AtACheckpointTheFirstOfThoseThatFitPasses) {
  Queue queue({.max_tokens = 100, .max_requests = 100});
  queue.Push(Needing(1, {.own = 80}));
  queue.Push(Needing(2, {.own = 10}));
  queue.Push(Needing(3, {.own = 70}));
  JobList expired;
  const Opening checkpoint{.beside = Opening::Beside::kHeldUp, .free_bytes = 79};
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired, checkpoint)), List{2});
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired, checkpoint)), List{3});
  EXPECT_TRUE(FormBatch(queue, kNow, &expired, checkpoint).empty());
  EXPECT_EQ(Tickets(FormBatch(queue, kNow, &expired)), List{1});
}

}  // namespace
}  // namespace castor

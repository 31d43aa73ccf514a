// The order in which answers are delivered, and the number of threads that do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/host_memory.h"
#include "engine/loop/pools.h"

namespace castor {
namespace {

constexpr size_t kSmall = 100;
constexpr size_t kLarge = size_t{16} << 20;

class CompletionsTest : public testing::Test {
 protected:
  void Start(int threads) {
    ledger_ =
        std::make_shared<Ledger>(LedgerOptions{.budgets = {.most = {100, 100, int64_t{1} << 40}},
                                               .limits = {.max_tokens = 100, .max_requests = 100},
                                               .completion_threads = threads},
                                 std::make_shared<SystemClock>(), counters_);
    completions_.emplace(threads, *ledger_, counters_);
  }

  // Runs a request of the tenant; `done` is called when its answer is delivered.
  void Answer(const std::string& tenant, size_t bytes, std::function<void()> done) {
    auto job = std::make_unique<Job>();
    job->tenant = tenant;
    ASSERT_TRUE(ledger_->Admit(*job).ok());
    auto& work = job->work.emplace<AttentionWork>();
    work.output = *memory_->Allocate(bytes);
    job->done = AttentionCompletion(
        [done = std::move(done)](const absl::StatusOr<AttentionResult>&) { done(); });
    ASSERT_TRUE(ledger_->Enqueue(std::move(job)).ok());
    JobList jobs = ledger_->NextBatch(/*wait=*/false);
    jobs.front()->last_run = std::make_shared<BatchOutcome>();
    ledger_->AnswerAll(std::move(jobs));
  }

  const std::shared_ptr<HostPool> memory_ =
      MakeHostPool({.allocate = [](size_t size) { return new std::byte[size]; },
                    .free = [](std::byte* data, size_t) { delete[] data; }},
                   /*max_cached_bytes=*/0);
  Counters counters_;
  std::shared_ptr<Ledger> ledger_;
  std::optional<Completions> completions_;
};

// With two threads, large answers whose callers are slow do not delay small ones.
TEST_F(CompletionsTest, LargeAnswersLeaveAThreadToSmallOnes) {
  Start(2);
  std::latch small_done(1);
  std::atomic<int> delivered = 0;
  for (int i = 0; i < 4; ++i) {
    Answer("a", kLarge, [&] {
      small_done.wait();
      ++delivered;
    });
  }
  Answer("a", kSmall, [&] { small_done.count_down(); });
  small_done.wait();
  completions_.reset();
  EXPECT_EQ(delivered, 4) << "all that was posted is delivered";
}

TEST_F(CompletionsTest, OneThreadDeliversLargeAnswersToo) {
  Start(1);
  std::atomic<int> delivered = 0;
  for (int i = 0; i < 3; ++i) Answer("a", kLarge, [&] { ++delivered; });
  completions_.reset();
  EXPECT_EQ(delivered, 3);
}

// Ten answers of one tenant came first. The other tenant's do not wait for all of them, and a
// tenant's own answers keep their order.
TEST_F(CompletionsTest, TenantsTakeTurnsByBytes) {
  Start(1);
  std::latch posted(1);
  Answer("a", kLarge, [&] { posted.wait(); });  // blocks the thread meanwhile
  std::vector<std::string> order;               // written by the one thread
  for (int i = 0; i < 10; ++i) {
    Answer("a", kLarge, [&, i] { order.push_back("a" + std::to_string(i)); });
  }
  for (int i = 0; i < 2; ++i) {
    Answer("b", kSmall, [&, i] { order.push_back("b" + std::to_string(i)); });
  }
  posted.count_down();
  completions_.reset();
  ASSERT_EQ(order.size(), 12U);
  order.resize(4);
  EXPECT_THAT(order, testing::ElementsAre("b0", "b1", "a0", "a1"));
}

}  // namespace
}  // namespace castor

// In which order answers are delivered, and by how many threads.
#include "engine/scheduling/completion_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/host_memory.h"

namespace castor {
namespace {

constexpr size_t kSmall = 100;
constexpr size_t kLarge = size_t{16} << 20;

class CompletionPoolTest : public testing::Test {
 protected:
  void Start(int threads) {
    pool_ = std::make_unique<CompletionPool>(threads, std::make_shared<TenantTable>(), counters_,
                                             outstanding_);
  }

  // Calls `done` when the answer is delivered.
  Answer AnswerOf(const std::string& tenant, size_t bytes, std::function<void()> done) {
    outstanding_.Add();
    auto job = std::make_unique<Job>();
    job->tenant = tenant;
    job->last_run = std::make_shared<BatchOutcome>();
    AttentionWork work;
    work.output = *memory_->Allocate(bytes);
    job->work = std::move(work);
    job->done = AttentionCompletion(
        [done = std::move(done)](const absl::StatusOr<AttentionResult>&) { done(); });
    return Success(std::move(job));
  }

  void Post(Answer answer) {
    std::vector<Answer> answers;
    answers.push_back(std::move(answer));
    pool_->Post(std::move(answers));
  }

  const std::shared_ptr<HostPool> memory_ =
      MakeHostPool({.allocate = [](size_t size) { return new std::byte[size]; },
                    .free = [](std::byte* data, size_t) { delete[] data; }},
                   /*max_cached_bytes=*/0);
  Counters counters_;
  SystemClock clock_;
  Outstanding outstanding_{clock_};
  std::unique_ptr<CompletionPool> pool_;
};

// Two threads, and large answers whose callers take their time: others have theirs all the same.
TEST_F(CompletionPoolTest, LargeAnswersLeaveAThreadToSmallOnes) {
  Start(2);
  std::latch small_done(1);
  std::atomic<int> delivered = 0;
  for (int i = 0; i < 4; ++i) {
    Post(AnswerOf("a", kLarge, [&] {
      small_done.wait();
      ++delivered;
    }));
  }
  Post(AnswerOf("a", kSmall, [&] { small_done.count_down(); }));
  small_done.wait();
  pool_.reset();
  EXPECT_EQ(delivered, 4) << "all that was posted is delivered";
}

TEST_F(CompletionPoolTest, OneThreadDeliversLargeAnswersToo) {
  Start(1);
  std::atomic<int> delivered = 0;
  for (int i = 0; i < 3; ++i) Post(AnswerOf("a", kLarge, [&] { ++delivered; }));
  pool_.reset();
  EXPECT_EQ(delivered, 3);
}

// Ten of one tenant came first; the other's one does not wait for them all, and a tenant's own keep
// their order.
TEST_F(CompletionPoolTest, TenantsTakeTurnsByBytes) {
  Start(1);
  std::latch posted(1);
  Post(AnswerOf("a", kLarge, [&] { posted.wait(); }));  // holds the thread up meanwhile
  std::vector<std::string> order;                       // of the one thread
  for (int i = 0; i < 10; ++i) {
    Post(AnswerOf("a", kLarge, [&, i] { order.push_back("a" + std::to_string(i)); }));
  }
  for (int i = 0; i < 2; ++i) {
    Post(AnswerOf("b", kSmall, [&, i] { order.push_back("b" + std::to_string(i)); }));
  }
  posted.count_down();
  pool_.reset();
  ASSERT_EQ(order.size(), 12U);
  order.resize(4);
  EXPECT_THAT(order, testing::ElementsAre("b0", "b1", "a0", "a1"));
}

}  // namespace
}  // namespace castor

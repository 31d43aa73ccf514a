// The answer cache's room, through the engine: what goes first, and what its bytes are.
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <string>
#include <variant>

#include "tests/support/sanitizer.h"
#include "tests/unit/loop/cache/answer_cache_fixture.h"

namespace castor {
namespace {

class AnswerCacheRoomTest : public AnswerCacheTest {};

TEST_F(AnswerCacheRoomTest, TheLeastRecentlyUsedGoesFirst) {
  StartWithModel(256);
  ASSERT_FALSE(Hits(Ids({0})));
  const int64_t each = Stats().bytes;
  EXPECT_GT(each, 1024);
  EXPECT_LT(each, 2048);
  const int64_t most = kCacheRoom / (each + 100);
  for (int64_t i = 1; i < most; ++i) {
    ASSERT_FALSE(Hits(Ids({i})));
    ASSERT_TRUE(Hits(Ids({0}))) << i << " and it is always used again";
  }
  int64_t next = most;
  while (Stats().bytes + each <= kCacheRoom - 1000) ASSERT_FALSE(Hits(Ids({next++})));
  for (int64_t i = 0; i < 3; ++i) ASSERT_FALSE(Hits(Ids({next++})));
  EXPECT_LE(Stats().bytes, kCacheRoom);
  EXPECT_TRUE(Hits(Ids({0})));
  EXPECT_TRUE(Hits(Ids({next - 1})));
  EXPECT_FALSE(Hits(Ids({1}))) << "it was the oldest";
}

TEST_F(AnswerCacheRoomTest, AGreedyTenantDropsItsOwn) {
  StartWithModel(256);
  for (int64_t i = 0; i < 100; ++i) ASSERT_FALSE(Hits(Ids({i}, "modest")));
  for (int64_t i = 0; i < 3000; ++i) ASSERT_FALSE(Hits(Ids({i}, "greedy")));
  for (int64_t i = 0; i < 100; ++i) EXPECT_TRUE(Hits(Ids({i}, "modest"))) << i;
  EXPECT_TRUE(Hits(Ids({2999}, "greedy")));
  EXPECT_FALSE(Hits(Ids({0}, "greedy")));
  EXPECT_LE(Stats().bytes, kCacheRoom);
}

// Else many that never come back would keep the room that they once had.
TEST_F(AnswerCacheRoomTest, ATenantThatIsAwayForAnHourMakesRoomFirst) {
  StartWithModel(256);
  const auto fill = [&](const std::string& tenant, int64_t requests) {
    for (int64_t i = 0; i < requests; ++i) {
      const std::string each = tenant == "passing" ? tenant + std::to_string(i) : tenant;
      ASSERT_TRUE(Run(Ids({i}, each)).ok());
    }
  };
  const auto kept = [&](const std::string& tenant) {
    int64_t hits = 0;
    for (int64_t i = 0; i < 300; ++i) hits += Hits(Ids({i}, tenant));
    return hits;
  };
  fill("passing", 2000);
  fill("regular", 300);
  EXPECT_LT(kept("regular"), 5) << "each of the others has one answer, and keeps it";
  clock_->Advance(std::chrono::hours(1));
  fill("regular", 300);
  EXPECT_EQ(kept("regular"), 300);
}

TEST_F(AnswerCacheRoomTest, LargePartsOfTheCacheAreNotKept) {
  options_.answer_cache = 20'000;
  StartWithModel(256);
  EXPECT_FALSE(Hits(Ids({1})));
  EXPECT_TRUE(Hits(Ids({1})));
  EncodeRequest large = Ids({1, 1});
  std::get<TokenInput>(large.input).lengths = {1, 1};
  EXPECT_FALSE(Hits(large));
  EXPECT_FALSE(Hits(large));
  EXPECT_TRUE(Hits(Ids({1}))) << "it did not make room";
  EXPECT_FALSE(Hits(Ids({1}, std::string(1000, 't')))) << "nor is a name of that size";
  EXPECT_FALSE(Hits(Ids({1}, std::string(1000, 't'))));
}

// The heap's growth, as the C library counts it, with many small answers of many tenants.
TEST_F(AnswerCacheRoomTest, BytesAreWhatTheHeapHolds) {
  if (kSanitized) GTEST_SKIP() << "its allocator is another";
  options_.answer_cache = int64_t{8} << 20;
  for (const int64_t width : {1, 384}) {
    options_.models.clear();
    engine_.reset();
    StartWithModel(width);
    constexpr int64_t kNote = 96;  // what the script notes of each batch, at most
    int64_t next = 0;
    const auto fill = [&](int64_t requests) {
      for (const int64_t end = next + requests; next < end; ++next) {
        ASSERT_TRUE(Run(Ids({next, 1, 2}, "tenant" + std::to_string(next % 500))).ok());
      }
    };
    fill(1000);  // with what the engine itself keeps of many tenants
    const auto before = static_cast<int64_t>(mallinfo2().uordblks);
    const int64_t counted = Stats().bytes;
    for (const int64_t requests : {2000, 15'000}) {
      fill(requests);
      const int64_t heap = static_cast<int64_t>(mallinfo2().uordblks) - before;
      EXPECT_LE(heap, Stats().bytes - counted + kNote * next) << width;
      EXPECT_GE(heap, (Stats().bytes - counted) / 2) << width;
    }
    EXPECT_LE(Stats().bytes, options_.answer_cache);
    EXPECT_GT(Stats().bytes, options_.answer_cache / 10 * 9);
  }
}

TEST_F(AnswerCacheRoomTest, HitsCountInTheBudgetsUntilTheirHoldersLetThemGo) {
  StartWithModel(256);
  ASSERT_FALSE(Hits(Ids({1})));
  {
    const auto held = Run(Ids({1}));
    ASSERT_TRUE(held.ok());
    EXPECT_GE(engine_->stats().load.inflight_bytes, 1024);
  }
  const LoadStats load = engine_->stats().load;
  EXPECT_EQ(load.inflight_bytes, 0);
  EXPECT_EQ(load.inflight_requests, 0);
  EXPECT_EQ(load.queued_seconds, 0);
}

}  // namespace
}  // namespace castor

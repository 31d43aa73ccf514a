#include "engine/base/host_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/config.h"
#include "engine/base/error.h"
#include "tests/support/seeded.h"

namespace castor {
namespace {

// A memory source that counts its blocks. Static, because a HostMemorySource consists of two plain
// function pointers.
std::atomic<int64_t> taken_blocks = 0;
std::atomic<int64_t> taken_bytes = 0;
std::atomic<int64_t> made_blocks = 0;  // in total, freed ones included

HostMemorySource CountingMemory() {
  return {[](size_t size) {
            ++taken_blocks;
            ++made_blocks;
            taken_bytes += static_cast<int64_t>(size);
            return SystemMemory().allocate(size);
          },
          [](std::byte* data, size_t size) {
            --taken_blocks;
            taken_bytes -= static_cast<int64_t>(size);
            SystemMemory().free(data, size);
          }};
}

class HostMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    taken_blocks = 0;
    taken_bytes = 0;
    made_blocks = 0;
  }
};

TEST_F(HostMemoryTest, BuffersAreAlignedAndOfTheAskedSize) {
  auto pool = MakeHostPool(CountingMemory(), 1 << 20);
  for (size_t size : {1u, 63u, 64u, 255u, 256u, 257u, 1000u, 4096u, 4097u, 100'000u, 1'000'003u}) {
    auto buffer = pool->Allocate(size);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u) << size;
    std::memset(buffer->data(), 0xab, size);  // AddressSanitizer checks the bounds
    // A buffer takes at most a quarter more than requested, except for small ones.
    EXPECT_LE(pool->stats().in_use_bytes, static_cast<int64_t>(size + size / 4 + 256)) << size;
  }
}

TEST_F(HostMemoryTest, AnEmptyBufferTakesNothing) {
  auto pool = MakeHostPool(CountingMemory(), 1 << 20);
  auto buffer = pool->Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_TRUE(buffer->bytes().empty());
  EXPECT_EQ(taken_blocks, 0);
}

TEST_F(HostMemoryTest, ReusesWhatWasGivenBack) {
  auto pool = MakeHostPool(CountingMemory(), 1 << 20);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(pool->Allocate(5000).ok());
  EXPECT_EQ(taken_blocks, 1);
  EXPECT_EQ(pool->stats().in_use_bytes, 0);
  EXPECT_EQ(pool->stats().cached_bytes, taken_bytes);
  EXPECT_EQ(pool->stats().peak_bytes, taken_bytes);
}

TEST_F(HostMemoryTest, CachesNoMoreThanItsBound) {
  auto pool = MakeHostPool(CountingMemory(), 10'000);
  {
    std::vector<HostBuffer> buffers;
    for (int i = 0; i < 10; ++i) buffers.push_back(*pool->Allocate(4096));
  }
  EXPECT_EQ(pool->stats().in_use_bytes, 0);
  EXPECT_EQ(pool->stats().cached_bytes, 2 * 4096);
  EXPECT_EQ(taken_bytes, 2 * 4096);
}

// When a server's traffic changes, blocks of the new size replace those of the old one.
TEST_F(HostMemoryTest, AFullCacheGivesUpItsOldestBlocksOfWhateverSize) {
  auto pool = MakeHostPool(CountingMemory(), 64 << 10);
  {
    std::vector<HostBuffer> buffers;
    for (int i = 0; i < 64; ++i) buffers.push_back(*pool->Allocate(1 << 10));
  }
  ASSERT_EQ(pool->stats().cached_bytes, 64 << 10);  // full, all of one size
  made_blocks = 0;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(pool->Allocate(20 << 10).ok());
  EXPECT_EQ(made_blocks, 1);
  EXPECT_LE(pool->stats().cached_bytes, 64 << 10);
  EXPECT_EQ(pool->stats().cached_bytes, taken_bytes);
}

TEST_F(HostMemoryTest, WhatIsFreeForARoundGoesAndWhatIsUsedStays) {
  auto pool = MakeHostPool(CountingMemory(), 1 << 20);
  const auto use = [&](int blocks, size_t size) {
    std::vector<HostBuffer> buffers;
    for (int i = 0; i < blocks; ++i) buffers.push_back(*pool->Allocate(size));
  };
  use(10, 4 << 10);
  use(3, 64 << 10);
  const HostBuffer held = *pool->Allocate(1 << 10);
  pool->ReleaseUnused();
  EXPECT_EQ(taken_blocks, 14) << "all were used recently";
  for (int round = 0; round < 5; ++round) {
    use(2, 4 << 10);
    pool->ReleaseUnused();
    EXPECT_EQ(taken_blocks, 3) << "two of the burst are still used, and one is held";
    EXPECT_EQ(pool->stats().cached_bytes, 2 * (4 << 10));
  }
  EXPECT_EQ(made_blocks, 14) << "blocks in use are not replaced";
  pool->ReleaseUnused();
  EXPECT_EQ(taken_blocks, 1);
  EXPECT_EQ(pool->stats().cached_bytes, 0);
}

TEST_F(HostMemoryTest, ABlockLargerThanTheCacheLeavesItAlone) {
  auto pool = MakeHostPool(CountingMemory(), 3 << 10);
  ASSERT_TRUE(pool->Allocate(1 << 10).ok());
  ASSERT_TRUE(pool->Allocate(4 << 10).ok());
  EXPECT_EQ(pool->stats().cached_bytes, 1 << 10);
  EXPECT_EQ(taken_bytes, 1 << 10);
}

TEST_F(HostMemoryTest, GivesItsCacheBackRatherThanSayThereIsNone) {
  static int64_t room = 4 << 10;
  HostMemorySource source = {[](size_t size) -> std::byte* {
                               if (static_cast<int64_t>(size) > room) return nullptr;
                               room -= static_cast<int64_t>(size);
                               return SystemMemory().allocate(size);
                             },
                             [](std::byte* data, size_t size) {
                               room += static_cast<int64_t>(size);
                               SystemMemory().free(data, size);
                             }};
  auto pool = MakeHostPool(source, 1 << 20);
  ASSERT_TRUE(pool->Allocate(3 << 10).ok());
  EXPECT_EQ(room, 1 << 10);  // the rest is cached
  EXPECT_TRUE(pool->Allocate(4 << 10).ok());
  EXPECT_EQ(ReasonOf(pool->Allocate(5 << 10).status()), Reason::kOutOfMemory);
  EXPECT_EQ(pool->stats().cached_bytes, 0);
}

TEST_F(HostMemoryTest, SizesBeyondAllReasonAreOutOfMemory) {
  auto pool = MakeHostPool(CountingMemory(), 1 << 20);
  for (const size_t size : {SIZE_MAX, SIZE_MAX / 2, (size_t{1} << 62) + 1}) {
    EXPECT_EQ(ReasonOf(pool->Allocate(size).status()), Reason::kOutOfMemory);
  }
  EXPECT_EQ(taken_blocks, 0);
}

TEST_F(HostMemoryTest, BuffersOutliveTheirPool) {
  HostBuffer buffer;
  {
    auto pool = MakeHostPool(CountingMemory(), 1 << 20);
    buffer = *pool->Allocate(1000);
  }
  std::memset(buffer.data(), 1, buffer.size());
  buffer = HostBuffer();
  EXPECT_EQ(taken_blocks, 0);
}

TEST_F(HostMemoryTest, MovedBuffersGiveBackOnce) {
  auto pool = MakeHostPool(CountingMemory(), 0);
  HostBuffer first = *pool->Allocate(100);
  std::byte* const data = first.data();
  HostBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  HostBuffer third;
  third = std::move(second);
  EXPECT_EQ(taken_blocks, 1);
  third = HostBuffer();
  EXPECT_EQ(taken_blocks, 0);
  EXPECT_EQ(pool->stats().in_use_bytes, 0);
}

TEST_F(HostMemoryTest, SaysWhenTheSystemHasNone) {
  auto pool = MakeHostPool({[](size_t) -> std::byte* { return nullptr; },
                            [](std::byte*, size_t) { FAIL() << "nothing to free"; }},
                           1 << 20);
  EXPECT_EQ(ReasonOf(pool->Allocate(1).status()), Reason::kOutOfMemory);
  EXPECT_EQ(pool->stats().in_use_bytes, 0);
}

#ifdef ABSL_HAVE_ADDRESS_SANITIZER
TEST_F(HostMemoryTest, AddressSanitizerSeesIntoThePool) {
  auto pool = MakeHostPool(CountingMemory(), 1 << 20);
  HostBuffer buffer = *pool->Allocate(100);
  volatile std::byte* const data = buffer.data();
  EXPECT_DEATH(data[100] = std::byte{1}, "use-after-poison") << "the slack behind a buffer";
  buffer = HostBuffer();
  EXPECT_DEATH(data[0] = std::byte{1}, "use-after-poison") << "a buffer given back";
}
#endif

// Each buffer belongs to one owner while several threads allocate, fill, check and free.
TEST_F(HostMemoryTest, ThreadsNeverShareABuffer) {
  const unsigned seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  {
    auto pool = MakeHostPool(CountingMemory(), 64 << 10);
    std::atomic<int> torn = 0;
    const auto worker = [&](unsigned number) {
      std::mt19937 random(seed + number);
      std::vector<HostBuffer> held(8);
      for (int i = 0; i < 3000; ++i) {
        HostBuffer& buffer = held[random() % held.size()];
        for (std::byte byte : buffer.bytes()) {
          if (byte != static_cast<std::byte>(number)) ++torn;
        }
        buffer = *pool->Allocate(1 + random() % 3000);
        std::memset(buffer.data(), static_cast<int>(number), buffer.size());
      }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i <= 4; ++i) threads.emplace_back(worker, i);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(torn, 0);
    EXPECT_EQ(pool->stats().in_use_bytes, 0);
    EXPECT_LE(pool->stats().cached_bytes, 64 << 10);
    EXPECT_EQ(pool->stats().cached_bytes, taken_bytes);
  }
  EXPECT_EQ(taken_blocks, 0);
}

}  // namespace
}  // namespace castor

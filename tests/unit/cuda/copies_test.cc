// The copies from a batch's output tensors to the requests' output slabs, without a GPU.

#include "engine/device/cuda/packing/copies.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/support/seeded.h"

namespace castor {
namespace {

// Cuts [0, total) at random and gives each part its own memory.
struct Parts {
  std::vector<std::vector<std::byte>> memory;
  std::vector<ByteRange> ranges;
};

Parts CutAtRandom(std::mt19937& random, int64_t total, bool with_empty) {
  Parts parts;
  int64_t first = 0;
  while (first < total) {
    int64_t bytes = std::min<int64_t>(total - first, 1 + random() % 40);
    if (with_empty && random() % 4 == 0) bytes = 0;
    parts.memory.emplace_back(bytes, std::byte{0});
    parts.ranges.push_back({first, bytes, nullptr});
    first += bytes;
  }
  for (size_t i = 0; i < parts.memory.size(); ++i) {
    parts.ranges[i].data = parts.memory[i].data();
  }
  return parts;
}

TEST(PlanCopiesTest, BringsEveryByteToItsPlace) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const int64_t total = 1 + random() % 400;
    Parts from = CutAtRandom(random, total, false);
    Parts to = CutAtRandom(random, total, true);
    uint8_t value = 0;
    for (auto& part : from.memory) {
      for (std::byte& byte : part) byte = std::byte{value++};
    }
    const std::vector<Copy> copies = PlanCopies(from.ranges, to.ranges);
    EXPECT_LE(copies.size(), from.ranges.size() + to.ranges.size());
    for (const Copy& copy : copies) {
      ASSERT_GT(copy.bytes, 0u);
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
    value = 0;
    for (const auto& part : to.memory) {
      for (std::byte byte : part) ASSERT_EQ(byte, std::byte{value++});
    }
  }
}

}  // namespace
}  // namespace castor

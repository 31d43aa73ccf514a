// The copies from a batch's output tensors to the requests' output slabs, without a GPU.

#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <random>
#include <stdexcept>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/cuda/faults.h"
#include "engine/device/cuda/packing/copies.h"
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

// Reports of LibTorch and CUDA become a Status; a permanently broken device is remembered.

[[noreturn]] void ThrowOutOfMemory() {
  C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory. Tried to allocate 3 GiB");
}

absl::Status GuardThrowing(Faults& faults, void (*body)()) {
  return faults.Guard([&]() -> absl::Status {
    body();
    return absl::OkStatus();
  });
}

TEST(FaultsTest, PassesOnWhatTheBodyReturns) {
  Faults faults([] { return true; });
  EXPECT_TRUE(faults.Guard([] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(faults.Guard([] { return MakeError(Reason::kNotServed, "no"); }).code(),
            CodeOf(Reason::kNotServed));
}

TEST(FaultsTest, OutOfMemoryIsNoFault) {
  Faults faults([] { return false; });
  EXPECT_EQ(ReasonOf(GuardThrowing(faults, ThrowOutOfMemory)), Reason::kOutOfMemory);
  EXPECT_EQ(ReasonOf(GuardThrowing(faults, [] { throw std::bad_alloc(); })), Reason::kOutOfMemory);
  EXPECT_EQ(
      ReasonOf(GuardThrowing(
          faults, [] { throw c10::AcceleratorError({}, cudaErrorMemoryAllocation, "full"); })),
      Reason::kOutOfMemory);
  EXPECT_EQ(ReasonOf(faults.FromCode(cudaErrorMemoryAllocation, "copying")), Reason::kOutOfMemory);
  EXPECT_TRUE(faults.healthy());
}

TEST(FaultsTest, AnErrorThatPassesLeavesTheDeviceHealthy) {
  Faults faults([] { return true; });
  const absl::Status status =
      GuardThrowing(faults, [] { TORCH_CHECK(false, "bad shape\nsecond line"); });
  EXPECT_EQ(ReasonOf(status), Reason::kInternal);
  EXPECT_EQ(status.message().find("second line"), absl::string_view::npos);
  EXPECT_NE(status.message().find("bad shape"), absl::string_view::npos);
  EXPECT_EQ(ReasonOf(GuardThrowing(faults, [] { throw std::runtime_error("odd"); })),
            Reason::kInternal);
  EXPECT_EQ(ReasonOf(GuardThrowing(faults, [] { throw 7; })), Reason::kInternal);
  EXPECT_TRUE(faults.healthy());
}

TEST(FaultsTest, AnErrorThatStaysMarksTheDevice) {
  Faults faults([] { return false; });
  const absl::Status status = faults.FromCode(cudaErrorIllegalAddress, "waiting for a batch");
  EXPECT_EQ(ReasonOf(status), Reason::kInternal);
  EXPECT_NE(status.message().find("waiting for a batch"), absl::string_view::npos);
  EXPECT_FALSE(faults.healthy());
}

}  // namespace
}  // namespace castor

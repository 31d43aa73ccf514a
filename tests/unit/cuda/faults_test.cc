// Reports of LibTorch and CUDA become a Status; a permanently broken device is remembered.

#include "engine/device/cuda/faults.h"

#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "engine/base/error.h"

namespace castor {
namespace {

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

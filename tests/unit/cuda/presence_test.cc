// Which CUDA errors mean that there is no GPU.

#include "engine/device/cuda/presence.h"

#include <gtest/gtest.h>

namespace castor {
namespace {

constexpr int kOk = 0;
constexpr int kStub = 34;
constexpr int kInsufficientDriver = 35;
constexpr int kNoDevice = 100;

TEST(NoGpuTest, NoDriverOrNoDevice) {
  EXPECT_TRUE(NoGpu({kStub, 0, false, false}));
  EXPECT_TRUE(NoGpu({kInsufficientDriver, 0, false, false}));
  EXPECT_TRUE(NoGpu({kNoDevice, 13000, false, false}));
  EXPECT_TRUE(NoGpu({kOk, 13000, false, false}));
}

TEST(NoGpuTest, HidingTheDeviceIsAWayToHaveNone) {
  EXPECT_TRUE(NoGpu({kNoDevice, 13000, true, true}));
}

TEST(NoGpuTest, ADeviceThatDoesNotWorkIsThere) {
  EXPECT_FALSE(NoGpu({kInsufficientDriver, 11080, true, false})) << "an old driver";
  EXPECT_FALSE(NoGpu({kNoDevice, 13000, true, false})) << "split (MIG), and no part handed out";
  // Initialisation, devices unavailable, ECC, system not ready, unknown.
  for (const int error : {3, 46, 214, 802, 999}) {
    EXPECT_FALSE(NoGpu({error, 13000, true, false})) << error;
    EXPECT_FALSE(NoGpu({error, 13000, false, true})) << error;
  }
}

}  // namespace
}  // namespace castor

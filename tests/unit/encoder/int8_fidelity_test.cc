// The fidelity that a model in 8 bits reports.

#include "engine/encoder/network/int8_fidelity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace castor::encoder {
namespace {

TEST(Int8FidelityTest, IsTheMeanAndTheLeastOfTheCosines) {
  const Int8Fidelity fidelity = CompareVectors({1, 0, 1, 0}, {2, 0, 3, 4}, 2);
  EXPECT_DOUBLE_EQ(fidelity.mean_cosine, 0.8);
  EXPECT_DOUBLE_EQ(fidelity.least_cosine, 0.6);
}

// Wherever the vector is among the others.
TEST(Int8FidelityTest, IsNoNumberWhereAVectorIsNotFinite) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (int bad = 0; bad < 3; ++bad) {
    std::vector<float> int8 = {2, 0, 3, 4, 1, 1};
    int8[static_cast<size_t>(2 * bad)] = kNaN;
    const Int8Fidelity fidelity = CompareVectors({1, 0, 1, 0, 1, 1}, int8, 2);
    EXPECT_TRUE(std::isnan(fidelity.mean_cosine)) << bad;
    EXPECT_TRUE(std::isnan(fidelity.least_cosine)) << bad;
  }
}

}  // namespace
}  // namespace castor::encoder

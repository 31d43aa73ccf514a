#include "engine/kernels/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace castor::kernels {
namespace {

// The known answers that come with the algorithm's own library, Random123 (kat_vectors).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox({ones, ones, ones, ones}, ~uint64_t{0}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, StreamsAreCountersOfTheirOwn) {
  EXPECT_EQ(Philox(RandomStream::kCentroid, 7, 5, 9), Philox({7, 5, 0, 3}, 9));
}

TEST(PhiloxTest, NormalsHaveTheirMoments) {
  constexpr int kCount = 100000;
  double sum = 0;
  double squares = 0;
  for (uint32_t i = 0; i < kCount; ++i) {
    const double x = PhiloxNormal(Philox(RandomStream::kPlane, i, 0, 42));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.015);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

TEST(PhiloxTest, NormalsAreFiniteAtTheEdges) {
  for (const uint32_t x0 : {0u, 1u, ~0u}) {
    for (const uint32_t x1 : {0u, ~0u}) {
      EXPECT_TRUE(std::isfinite(PhiloxNormal({x0, x1, 0, 0})));
    }
  }
}

}  // namespace
}  // namespace castor::kernels

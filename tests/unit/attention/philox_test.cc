#include "engine/kernels/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/twins/random.h"

namespace castor::kernels {
namespace {

// The known answers from Random123, the algorithm's own library (kat_vectors).
struct KnownAnswer {
  PhiloxBlock counter;
  uint64_t seed;
  PhiloxBlock words;
};
constexpr uint32_t kOnes = 0xffffffff;
constexpr KnownAnswer kKnownAnswers[] = {
    {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{kOnes, kOnes, kOnes, kOnes}, ~uint64_t{0}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     0x299f31d0a4093822,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(PhiloxTest, KnownAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    EXPECT_EQ(Philox(known.counter, known.seed), known.words);
    EXPECT_EQ(attention::TwinPhilox(known.counter, known.seed), known.words);
  }
}

TEST(PhiloxTest, DrawsWhatTheTwinDraws) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 1000; ++round) {
    const uint64_t seed = random();
    const auto c0 = static_cast<uint32_t>(random());
    const auto c1 = static_cast<uint32_t>(random());
    const PhiloxBlock plane = Philox(RandomStream::kPlane, c0, c1, seed);
    const attention::TwinWords twin =
        attention::TwinRandom(attention::TwinStream::kPlane, c0, c1, seed);
    EXPECT_EQ(plane, twin);
    EXPECT_EQ(PhiloxNormal(plane), attention::TwinNormal(twin));
    EXPECT_EQ(Philox(RandomStream::kBias, c0, c1, seed),
              attention::TwinRandom(attention::TwinStream::kBias, c0, c1, seed));
    EXPECT_EQ(Philox(RandomStream::kCentroid, c0, c1, seed),
              attention::TwinRandom(attention::TwinStream::kCentroid, c0, c1, seed));
  }
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

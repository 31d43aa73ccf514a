// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): random numbers that are a function of a seed and
// a position, so any thread of any device can draw the same one. Pure functions.
//
// Counter = (c0, c1, c2, stream), key = the seed. Each stream's comment gives the meaning of its
// counters.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace castor::kernels {

enum class RandomStream : uint32_t {
  kPlane = 1,        // c0 = dimension, c1 = plane
  kBias = 2,         // c1 = plane
  kCentroid = 3,     // c0 = stratum
  kFidelityRow = 4,  // c0 = row, c1 = sequence
};

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock Philox(PhiloxBlock counter, uint64_t seed) {
  constexpr uint64_t kMultiplier0 = 0xd2511f53;
  constexpr uint64_t kMultiplier1 = 0xcd9e8d57;
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
  return counter;
}

inline PhiloxBlock Philox(RandomStream stream, uint32_t c0, uint32_t c1, uint64_t seed) {
  return Philox({c0, c1, 0, static_cast<uint32_t>(stream)}, seed);
}

// A standard normal from the block's first two words (Box-Muller), computed in double precision.
inline float PhiloxNormal(const PhiloxBlock& block) {
  constexpr double kTwoPi = 6.283185307179586;
  const double u1 = (block[0] + 1.0) * 0x1p-32;
  const double u2 = block[1] * 0x1p-32;
  return static_cast<float>(std::sqrt(-2 * std::log(u1)) * std::cos(kTwoPi * u2));
}

}  // namespace castor::kernels

// Philox4x32-10 for the twins, written from its paper (Salmon, Moraes, Dror, Shaw 2011) and
// independent of the engine's, so that a mistake there cannot hide in both. Pure functions.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace castor::attention {

using TwinWords = std::array<uint32_t, 4>;

// What a number is drawn for. The comments give c0 and c1 of TwinRandom.
enum class TwinStream : uint32_t {
  kPlane = 1,     // the dimension, the plane
  kBias = 2,      // 0, the plane
  kCentroid = 3,  // the stratum, 0
};

inline TwinWords TwinPhilox(TwinWords counter, uint64_t seed) {
  auto key_low = static_cast<uint32_t>(seed);
  auto key_high = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    counter[0] = static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key_low;
    counter[1] = static_cast<uint32_t>(second);
    counter[2] = static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key_high;
    counter[3] = static_cast<uint32_t>(first);
    key_low += 0x9E3779B9;   // the golden ratio
    key_high += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

inline TwinWords TwinRandom(TwinStream stream, uint32_t c0, uint32_t c1, uint64_t seed) {
  return TwinPhilox({c0, c1, 0, static_cast<uint32_t>(stream)}, seed);
}

// A standard normal number (Box-Muller), rounded to float32 as the definition requires.
inline float TwinNormal(const TwinWords& words) {
  const double u1 = (double{1} + words[0]) / 4294967296.0;
  const double u2 = words[1] / 4294967296.0;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2));
}

}  // namespace castor::attention

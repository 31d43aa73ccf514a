// Standard normal values by the hundred million: windows of one table, at offsets drawn anew.
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace castor::load {

using Random = std::mt19937_64;

// A number in [0, bound), bound > 0. The same on every machine, unlike the library's distributions.
inline uint64_t Below(uint64_t bound, Random& random) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random()) * bound) >> 64);
}

// Fills `values`. Drawing each by itself would take seconds for one request of 64K tokens.
void FillGaussian(std::span<float> values, Random& random);

// The same around centres: each row of `width` values is one of `centres` plus noise, as trained
// keys and queries lie.
void FillStructured(std::span<float> values, int64_t width, int64_t centres, Random& random);

// One seed out of several numbers.
uint64_t MixSeed(uint64_t seed, uint64_t more);

}  // namespace castor::load

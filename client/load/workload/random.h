// Draws by algorithms of our own: the standard library's distributions differ between versions, and
// equal seeds must give equal schedules.
#pragma once

#include <cstdint>
#include <random>

namespace castor::load {

using Random = std::mt19937_64;

// A number in [0, bound), bound > 0.
inline uint64_t Below(uint64_t bound, Random& random) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random()) * bound) >> 64);
}

// In (0, 1]: its logarithm is finite.
inline double Uniform(Random& random) {
  return (static_cast<double>(random() >> 11) + 1) * 0x1p-53;
}

double Exponential(Random& random);  // mean 1
double Normal(Random& random);       // mean 0, variance 1

// One seed out of several numbers.
uint64_t MixSeed(uint64_t seed, uint64_t more);

}  // namespace castor::load

#include "client/load/workload/random.h"

#include <cmath>

namespace castor::load {

double Exponential(Random& random) { return -std::log(Uniform(random)); }

// Marsaglia's polar method. The second value that it gives is not kept: a draw has no memory.
double Normal(Random& random) {
  while (true) {
    const double x = 2 * Uniform(random) - 1;
    const double y = 2 * Uniform(random) - 1;
    const double square = x * x + y * y;
    if (square < 1 && square > 0) return x * std::sqrt(-2 * std::log(square) / square);
  }
}

uint64_t MixSeed(uint64_t seed, uint64_t more) {
  uint64_t mixed = seed + 0x9e3779b97f4a7c15 * (more + 1);  // splitmix64
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

}  // namespace castor::load

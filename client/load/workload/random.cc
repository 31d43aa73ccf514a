#include "client/load/workload/random.h"

#include <cmath>

#include "client/load/workload/portable_math.h"

namespace castor::load {

double Exponential(Random& random) { return -Log(Uniform(random)); }

// Marsaglia's polar method. The second value that it gives is not kept: a draw has no memory.
double Normal(Random& random) {
  while (true) {
    const double x = 2 * Uniform(random) - 1;
    const double y = 2 * Uniform(random) - 1;
    const double square = x * x + y * y;
    if (square < 1 && square > 0) return x * std::sqrt(-2 * Log(square) / square);
  }
}

// Marsaglia and Tsang 2000. Below shape 1: a draw of shape + 1, times a power of a uniform one.
double Gamma(double shape, Random& random) {
  if (shape < 1) {
    const double boost = Exp(Log(Uniform(random)) / shape);
    return boost * Gamma(shape + 1, random);
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = Normal(random);
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    const double u = Uniform(random);
    if (Log(u) < 0.5 * x * x + d - d * v + d * Log(v)) return d * v;
  }
}

uint64_t MixSeed(uint64_t seed, uint64_t more) {
  uint64_t mixed = seed + 0x9e3779b97f4a7c15 * (more + 1);  // splitmix64
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

}  // namespace castor::load

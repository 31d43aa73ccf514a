#include "client/load/workload/portable_math.h"

#include <cmath>
#include <limits>
#include <numbers>

// Additions, multiplications, divisions and powers of two are the same everywhere, as long as the
// compiler does not fuse them: see -ffp-contract in CMakeLists.txt.
namespace castor::load {
namespace {

// ln 2 in two parts; a whole exponent times the first is exact.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

}  // namespace

double Log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < std::numbers::sqrt2 / 2) {
    mantissa *= 2;
    --exponent;
  }
  // 2 atanh(s), |s| < 0.172.
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double sum = 0;
  for (int k = 21; k >= 3; k -= 2) sum = (sum + 1.0 / k) * square;
  return exponent * kLn2High + (2 * s + (2 * s * sum + exponent * kLn2Low));
}

double Exp(double x) {
  if (x < -708) return 0;
  if (x > 709) return std::numeric_limits<double>::infinity();
  const double exponent = std::floor(x * std::numbers::log2e + 0.5);
  const double rest = (x - exponent * kLn2High) - exponent * kLn2Low;  // |rest| < 0.35
  double sum = 0;
  for (int k = 15; k >= 1; --k) sum = (1 + sum) * rest / k;
  return std::ldexp(1 + sum, static_cast<int>(exponent));
}

double CosOfTurns(double turns) {
  double turn = std::abs(turns - std::floor(turns + 0.5));  // 0 to a half
  const bool flipped = turn > 0.25;
  if (flipped) turn = 0.5 - turn;
  const double angle = 2 * std::numbers::pi * turn;  // 0 to pi / 2
  const double square = angle * angle;
  double sum = 0;
  for (int k = 24; k >= 2; k -= 2) sum = (1 + sum) * -square / (k * (k - 1));
  return flipped ? -(1 + sum) : 1 + sum;
}

}  // namespace castor::load

#include "client/load/workload/lengths.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "client/load/workload/overloaded.h"
#include "client/load/workload/portable_math.h"

namespace castor::load {
namespace {

int64_t DrawLognormal(const LognormalLength& length, Random& random) {
  const double drawn = length.median * Exp(length.sigma * Normal(random));
  const double cut = std::clamp(std::floor(drawn + 0.5), static_cast<double>(length.least),
                                static_cast<double>(length.greatest));
  return static_cast<int64_t>(cut);
}

int64_t DrawMixture(const LengthMixture& mixture, Random& random) {
  double total = 0;
  for (const auto& part : mixture.parts) total += part.weight;
  double left = Uniform(random) * total;
  for (const auto& part : mixture.parts) {
    left -= part.weight;
    if (left <= 0) return Draw(part.of.front(), random);
  }
  return Draw(mixture.parts.back().of.front(), random);  // rounding
}

// The sum of P(length >= k) over k, where the length is rounded and cut.
double MeanOf(const LognormalLength& length) {
  double mean = static_cast<double>(length.least);
  for (int64_t k = length.least + 1; k <= length.greatest; ++k) {
    const double above = std::log((static_cast<double>(k) - 0.5) / length.median);
    const double share = length.sigma > 0
                             ? 0.5 * std::erfc(above / length.sigma / std::numbers::sqrt2)
                         : above <= 0 ? 1
                                      : 0;
    if (share < 1e-18) break;  // all further ones are smaller
    mean += share;
  }
  return mean;
}

double MeanOf(const LengthMixture& mixture) {
  double sum = 0, total = 0;
  for (const auto& part : mixture.parts) {
    sum += part.weight * Mean(part.of.front());
    total += part.weight;
  }
  return sum / total;
}

}  // namespace

int64_t Draw(const Length& length, Random& random) {
  return std::visit(
      Overloaded{[](const FixedLength& fixed) { return fixed.length; },
                 [&](const UniformLength& uniform) {
                   const auto count = static_cast<uint64_t>(uniform.greatest - uniform.least) + 1;
                   return uniform.least + static_cast<int64_t>(Below(count, random));
                 },
                 [&](const LognormalLength& lognormal) { return DrawLognormal(lognormal, random); },
                 [&](const EmpiricalLength& empirical) {
                   return empirical.lengths[Below(empirical.lengths.size(), random)];
                 },
                 [&](const LengthMixture& mixture) { return DrawMixture(mixture, random); }},
      length);
}

double Mean(const Length& length) {
  return std::visit(
      Overloaded{[](const FixedLength& fixed) { return static_cast<double>(fixed.length); },
                 [](const UniformLength& uniform) {
                   return 0.5 * static_cast<double>(uniform.least + uniform.greatest);
                 },
                 [](const LognormalLength& lognormal) { return MeanOf(lognormal); },
                 [](const EmpiricalLength& empirical) {
                   double sum = 0;
                   for (const int64_t one : empirical.lengths) sum += static_cast<double>(one);
                   return sum / static_cast<double>(empirical.lengths.size());
                 },
                 [](const LengthMixture& mixture) { return MeanOf(mixture); }},
      length);
}

int64_t Greatest(const Length& length) {
  return std::visit(Overloaded{[](const FixedLength& fixed) { return fixed.length; },
                               [](const UniformLength& uniform) { return uniform.greatest; },
                               [](const LognormalLength& lognormal) { return lognormal.greatest; },
                               [](const EmpiricalLength& empirical) {
                                 return *std::max_element(empirical.lengths.begin(),
                                                          empirical.lengths.end());
                               },
                               [](const LengthMixture& mixture) {
                                 int64_t greatest = 1;
                                 for (const auto& part : mixture.parts) {
                                   greatest = std::max(greatest, Greatest(part.of.front()));
                                 }
                                 return greatest;
                               }},
                    length);
}

}  // namespace castor::load

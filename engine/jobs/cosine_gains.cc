#include "engine/jobs/cosine_gains.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace castor {
namespace {

// One more comparison's weight, once there are many: changes of the traffic are noticed.
constexpr double kLeastWeight = 1.0 / 64;

// Before anything is known gains are taken to differ by such a factor, which counts as so many
// comparisons.
constexpr double kUsualDeviation = 0.7;
constexpr double kUsualWeight = 4;

// For one sequence.
constexpr double kDeviations = 2;

// Rounding: a loss below this is none, and a cosine nearer to 1 than this is not told from it.
constexpr double kLeastLoss = 1e-12;
constexpr double kLeastTurn = 1e-7;

}  // namespace

double CosineOf(std::span<const float> a, std::span<const float> b) {
  double product = 0;
  double norm_a = 0;
  double norm_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += double{a[i]} * b[i];
    norm_a += double{a[i]} * a[i];
    norm_b += double{b[i]} * b[i];
  }
  if (!std::isfinite(norm_a) || !std::isfinite(norm_b)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (norm_a == 0 || norm_b == 0) return norm_a == norm_b ? 1 : 0;
  return std::clamp(product / (std::sqrt(norm_a) * std::sqrt(norm_b)), -1.0, 1.0);
}

double DistanceOf(double cosine) { return std::sqrt(2 * (1 - cosine)); }

double CosineAt(double distance) { return 1 - distance * distance / 2; }

CosineGains::Key CosineGains::KeyOf(const Kind& kind, int32_t tokens, float loss) {
  return {.kind = kind,
          .length = static_cast<int>(std::bit_width(static_cast<uint32_t>(tokens))),
          .loss = static_cast<int>(std::floor(std::log2(loss) / 3))};
}

double CosineGains::Gain::Above(double deviations) const {
  const double seen_weight = std::min<double>(seen, 1 / kLeastWeight);
  const double variance_of_next =
      (seen_weight * variance + kUsualWeight * kUsualDeviation * kUsualDeviation) /
      (seen_weight + kUsualWeight);
  return std::exp(mean + deviations * std::sqrt(variance_of_next));
}

CosineGains::Estimate CosineGains::LeastCosine(const std::string& tenant, const Kind& kind,
                                               std::span<const int32_t> cu_seqlens,
                                               std::span<const float> losses) const {
  const Estimate unknown = {.cosine = std::numeric_limits<double>::quiet_NaN()};
  // The largest of n deviates is about sqrt(2 ln n) of them.
  const double several = 2 * std::log(static_cast<double>(std::max<size_t>(1, losses.size())));
  const double deviations = std::sqrt(kDeviations * kDeviations + several);
  double turn = 0;
  int comparisons = 0;
  for (size_t s = 0; s < losses.size(); ++s) {
    if (losses[s] <= kLeastLoss) continue;
    if (!std::isfinite(losses[s])) return unknown;
    const Key key = KeyOf(kind, cu_seqlens[s + 1] - cu_seqlens[s], losses[s]);
    const Gain* const gain = gains_.Find(tenant, key);
    if (gain == nullptr || gain->seen < kFewest) return unknown;
    turn = std::max(turn, losses[s] * gain->Above(deviations));
    comparisons = comparisons == 0 ? gain->seen : std::min(comparisons, gain->seen);
  }
  return {.cosine = std::max(-1.0, 1 - turn), .comparisons = comparisons};
}

void CosineGains::Learn(const std::string& tenant, const Kind& kind,
                        std::span<const int32_t> cu_seqlens, std::span<const float> losses,
                        std::span<const double> cosines) {
  for (size_t s = 0; s < losses.size(); ++s) {
    if (!(losses[s] > kLeastLoss) || !std::isfinite(losses[s]) || !std::isfinite(cosines[s])) {
      continue;
    }
    Gain& gain = gains_.Learn(tenant, KeyOf(kind, cu_seqlens[s + 1] - cu_seqlens[s], losses[s]));
    const double log_gain = std::log(std::max(1 - cosines[s], kLeastTurn) / losses[s]);
    const double weight = std::max(kLeastWeight, 1.0 / (gain.seen + 1));
    const double surprise = log_gain - gain.mean;
    gain.mean += weight * surprise;
    gain.variance = (1 - weight) * (gain.variance + weight * surprise * surprise);
    gain.seen = std::min(gain.seen + 1, std::numeric_limits<int>::max() - 1);
  }
}

}  // namespace castor

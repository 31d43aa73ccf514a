#include "engine/jobs/time_corrections.h"

#include <algorithm>
#include <cmath>

namespace castor {
namespace {

// The weight of one more run: that of a mean at first, then constant, so that a change of the
// machine's speed is noticed after some twenty runs and a single slow run hardly matters.
constexpr double kLeastStep = 0.05;

}  // namespace

size_t TimeCorrections::ClassOf(double base_us) {
  if (!(base_us > 1)) return 0;  // also NaN
  return static_cast<size_t>(std::min(std::log2(base_us), double{kClasses - 1}));
}

const TimeCorrections::Class* TimeCorrections::Nearest(size_t of) const {
  for (size_t distance = 0; distance < kClasses; ++distance) {
    if (of + distance < kClasses && classes_[of + distance].seen > 0) {
      return &classes_[of + distance];
    }
    if (distance <= of && classes_[of - distance].seen > 0) return &classes_[of - distance];
  }
  return nullptr;
}

double TimeCorrections::Factor(double base_us) const {
  const Class* const nearest = Nearest(ClassOf(base_us));
  return nearest == nullptr ? 1 : std::exp(nearest->log_factor);
}

void TimeCorrections::Learn(double base_us, double error, double weight) {
  if (!(error > 0) || !std::isfinite(error) || !(weight > 0)) return;
  const size_t index = ClassOf(base_us);
  Class& mine = classes_[index];
  if (mine.seen == 0) {
    if (const Class* const nearest = Nearest(index)) mine.log_factor = nearest->log_factor;
  }
  const double most = std::log(most_);
  const double step = std::max(kLeastStep, 1 / (mine.seen + trust_ + 1)) * std::min(weight, 1.0);
  const double surprise = std::clamp(std::log(error), -most, most);
  mine.log_factor = std::clamp(mine.log_factor + step * surprise, -most, most);
  mine.seen += weight;
}

}  // namespace castor

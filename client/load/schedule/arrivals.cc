#include "client/load/schedule/arrivals.h"

#include <algorithm>

namespace castor::load {

Arrivals::Arrivals(const OpenLoop& load, double seconds, double warm_up_seconds, uint64_t seed)
    : process_(load.process),
      shape_(1 / (load.burstiness * load.burstiness)),
      curve_(load.rate, seconds),
      warm_up_(warm_up_seconds),
      warm_up_rate_(curve_.At(0)),
      warm_up_due_(warm_up_rate_ * warm_up_),
      random_(seed),
      last_(-warm_up_) {}

double Arrivals::Gap() {
  return process_ == Process::kGamma ? Gamma(shape_, random_) / shape_ : Exponential(random_);
}

bool Arrivals::Next(double* time) {
  // Constant arrivals are counted, since a sum of many gaps would drift.
  due_ = process_ == Process::kConstant ? static_cast<double>(count_++) : due_ + Gap();
  if (due_ < warm_up_due_) {
    *time = due_ / warm_up_rate_ - warm_up_;
    return true;
  }
  const double due = due_ - warm_up_due_;
  if (due >= curve_.total()) return false;
  // The inverse is exact to a rounding, and so it could step back.
  *time = last_ = std::max(last_, curve_.TimeOf(due));
  return true;
}

}  // namespace castor::load

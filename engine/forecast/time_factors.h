// What recent runs say of the predictions of one kind of work: a factor for each size class
// (TimeClassOf). Its logarithm is the exponentially weighted moving average of
// log(measured / predicted) (S. W. Roberts, "Control Chart Tests Based on Geometric Moving
// Averages", Technometrics 1959). A run also counts for the classes around its own, for less with
// each step: what is wrong with all sizes is learned soon.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "engine/base/time.h"

namespace castor {

class TimeFactors {
 public:
  // How wrong predictions without a factor may be, as a factor, and how many runs they are worth.
  struct Trust {
    double most;
    double runs;
  };

  explicit TimeFactors(Trust trust) : trust_(trust) {}

  // The factor for predictions of about `us`; 1 before the first run.
  double Of(double us) const { return std::exp(classes_[TimeClassOf(us)].log_factor); }

  // What was predicted as `us`, without a factor, took `ratio` times as long. `weight`, from 0 to
  // 1, is the share of the run that it explains.
  void Learn(double us, double ratio, double weight) {
    if (!(ratio > 0) || !std::isfinite(ratio) || !(weight > 0)) return;
    const double most = std::log(trust_.most);
    const double log_ratio = std::clamp(std::log(ratio), -most, most);
    weight = std::min(weight, 1.0);
    const size_t own = TimeClassOf(us);
    double share = weight;
    for (size_t step = 0; step < classes_.size(); ++step, share *= kOfNext) {
      if (own + step < classes_.size()) classes_[own + step].Learn(log_ratio, share, trust_.runs);
      if (step > 0 && own >= step) classes_[own - step].Learn(log_ratio, share, trust_.runs);
    }
  }

 private:
  // The weight of one more run: that of a mean at first, then constant. So a change of the
  // machine's speed is followed within some twenty runs, and a single slow run hardly matters.
  static constexpr double kLeastStep = 0.05;

  // What a run counts for the next class, in proportion to its own. Of 0.5 to 0.85, replayed on
  // runs of prediction_bench after good calibrations and a bad one, any will do.
  static constexpr double kOfNext = 0.6;

  struct Class {
    double log_factor = 0;
    double seen = 0;  // sum of weights

    void Learn(double log_ratio, double share, double trusted_runs) {
      log_factor +=
          share * std::max(kLeastStep, 1 / (seen + trusted_runs + 1)) * (log_ratio - log_factor);
      seen += share;
    }
  };

  Trust trust_;
  std::array<Class, kTimeClasses> classes_{};
};

}  // namespace castor

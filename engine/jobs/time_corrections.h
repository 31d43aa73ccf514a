// What recent runs say about one kind of prediction: a factor for each size of problem.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace castor {

class TimeCorrections {
 public:
  // No factor is more than `most`, or less than 1 / `most`. A prediction without a factor is
  // trusted as much as `trust` runs.
  explicit TimeCorrections(double most, double trust = 1) : most_(most), trust_(trust) {}

  // The factor for predictions of about `base_us`: that of its size, or of the nearest one that has
  // been seen; 1 before the first.
  double Factor(double base_us) const;

  // A prediction of this size, made with its factor, was `error` times too short. `weight`, from 0
  // to 1, is the share of the run that it explains.
  void Learn(double base_us, double error, double weight);

 private:
  // Powers of two of microseconds: from 1 us to half a minute.
  static constexpr size_t kClasses = 26;
  struct Class {
    double log_factor = 0;
    double seen = 0;  // sum of weights
  };

  static size_t ClassOf(double base_us);
  const Class* Nearest(size_t of) const;

  double most_;
  double trust_;
  std::array<Class, kClasses> classes_;
};

}  // namespace castor

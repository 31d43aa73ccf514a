// How fast one implementation works on this device, learned from the runs that it had: so much of
// its work fits into the time that a launch may take.
//
// Used on the device's engine thread. Whatever it is told, it stays within bounds, and one
// measurement moves it little: results do not depend on it, only how finely batches are cut.
#pragma once

#include "engine/base/dtype.h"

namespace castor {

class LaunchPace {
 public:
  // Begins with a guess that is too slow for most GPUs, which cuts the first batches too finely
  // rather than not at all.
  explicit LaunchPace(DType dtype);

  // The work, in LaunchWork's unit, that takes so many microseconds.
  double WorkIn(double us) const { return us / us_per_unit_; }

  // A run of so much work took `us`.
  void Learn(double work, double us);

 private:
  const double first_guess_;
  double us_per_unit_;
};

}  // namespace castor

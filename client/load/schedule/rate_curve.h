// A rate over the run, as the number of requests that are due by a time, and its inverse.
#pragma once

#include <vector>

#include "client/load/workload/workload.h"

namespace castor::load {

// Times are seconds from the begin of the run, to its end. Immutable. The same on every machine.
class RateCurve {
 public:
  // REQUIRES: rates that are finite, not negative, and not all 0; 0 < seconds.
  RateCurve(const Rate& rate, double seconds);

  double At(double time) const;            // requests/s
  double DueBy(double time) const;         // requests from the begin to `time`
  double total() const { return total_; }  // to the end

  // The time from which on DueBy is above `due`, where 0 <= due < total(): never one at which the
  // rate is 0 and stays so.
  double TimeOf(double due) const;

 private:
  double SineDueBy(const SineRate& sine, double time) const;
  double SineTimeOf(const SineRate& sine, double due) const;

  const Rate rate_;
  const double seconds_;
  double total_ = 0;
  std::vector<double>
      table_;  // of steps: due by each step's begin; of a sine: by parts of a period
};

}  // namespace castor::load

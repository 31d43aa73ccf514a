// The times at which an open loop's requests are due: a point process of one arrival per unit,
// whose units pass as fast as the rate is.
#pragma once

#include <cstdint>

#include "client/load/schedule/rate_curve.h"
#include "client/load/workload/random.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// Draws the arrivals of a run, in order. Deterministic: on every machine the same. While warming up
// the rate is that of the begin of the run; the process goes on from there, so that the first
// counted gap is like all others. Constant arrivals begin with one at the warm-up's begin.
class Arrivals {
 public:
  Arrivals(const OpenLoop& load, double seconds, double warm_up_seconds, uint64_t seed);

  // How many there will be, on average.
  double expected() const { return warm_up_due_ + curve_.total(); }

  // The next arrival, in seconds from the begin of the run, negative while warming up. False at the
  // end.
  bool Next(double* time);

 private:
  double Gap();

  const Process process_;
  const double shape_;  // of a gamma process's gaps
  const RateCurve curve_;
  const double warm_up_, warm_up_rate_, warm_up_due_;
  Random random_;
  double due_ = 0;  // units until the last arrival
  double last_;     // its time
  int64_t count_ = 0;
};

}  // namespace castor::load

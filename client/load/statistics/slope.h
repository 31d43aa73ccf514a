// Whether a figure grew over a run, and how sure that is.
#pragma once

#include <cstddef>
#include <vector>

namespace castor::load {

struct Growth {
  double mean = 0;
  double growth = 0;    // of the fitted line, from the series' begin to its end
  double at_least = 0;  // one-sided bound: the growth is no less, with the confidence asked for
  size_t blocks = 0;    // that the bound rests on; 0: the series is too short, nothing is known
};

// Fits a line by least squares to `values`, one a second. Seconds of a run hang together (a queue
// that is long now is long a second later), which makes the usual error of a slope far too small.
// So the line goes through the means of blocks of seconds, 10 to 20 of them, which hang together
// much less, and the bound is Student's with two degrees of freedom less than there are blocks.
// Fewer than 10 values tell nothing.
Growth GrowthOf(const std::vector<double>& values, double confidence);

}  // namespace castor::load

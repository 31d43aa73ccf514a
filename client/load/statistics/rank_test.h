// Whether the values of one sample tend to be greater than another's, whatever their distribution:
// the Mann-Whitney test, with the correction for ties.
#pragma once

#include <vector>

#include "client/load/measure/histogram.h"

namespace castor::load {

struct RankTest {
  // The effect: how likely a value of b is greater than one of a; equal ones count half. 0.5 is no
  // difference, 1 is all of b above all of a.
  double b_above_a = 0.5;
  // Two-sided, from the normal approximation with continuity correction: how likely an effect of
  // that size is by chance, if values are independent. 1 when either sample is empty.
  double p_value = 1;
};

// Of values. For whether runs differ, give one figure for each block of seconds (see bootstrap.h):
// the answers within a run hang together, so that a test on all of them finds a difference between
// any two runs, however equal.
RankTest MannWhitney(const std::vector<double>& a, const std::vector<double>& b);

// Of all answers, values in one bucket being equal. Its effect means something; its p value does
// not unless the answers are independent.
RankTest MannWhitney(const Histogram& a, const Histogram& b);

}  // namespace castor::load

// The median of measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace castor::bench {

// The mean of the middle two for an even number of values; 0 for none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace castor::bench

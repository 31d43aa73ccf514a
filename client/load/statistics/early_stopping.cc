#include "client/load/statistics/early_stopping.h"

#include <boost/math/special_functions/beta.hpp>
#include <limits>

namespace castor::load {

double ConfidenceWithin(double quantile, int64_t requests, int64_t over_limit) {
  const int64_t within = requests - over_limit;
  if (within <= 0) return 0;
  return boost::math::ibetac(static_cast<double>(within), static_cast<double>(over_limit) + 1,
                             quantile);
}

int64_t QueriesNeeded(double quantile, int64_t over_limit, double confidence) {
  constexpr int64_t kMost = int64_t{1} << 52;
  const auto enough = [&](int64_t within) {
    return ConfidenceWithin(quantile, within + over_limit, over_limit) >= confidence;
  };
  // More requests within the limit never make it less sure. So double, then bisect.
  int64_t greatest = 1;
  while (!enough(greatest)) {
    if (greatest > kMost) return std::numeric_limits<int64_t>::max();
    greatest *= 2;
  }
  int64_t least = greatest / 2;  // not enough, or 0
  while (greatest - least > 1) {
    const int64_t middle = least + (greatest - least) / 2;
    (enough(middle) ? greatest : least) = middle;
  }
  return greatest + over_limit;
}

}  // namespace castor::load

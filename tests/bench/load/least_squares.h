// A line through measured points, and how sure its slope is.
#pragma once

#include <vector>

namespace castor::bench {

struct Point {
  double x = 0, y = 0;
};

struct Line {
  double slope = 0;           // 0 where the points have no spread in x
  double standard_error = 0;  // of the slope, if the points stray from the line independently;
                              // infinite for fewer than three points
};

Line LeastSquares(const std::vector<Point>& points);

}  // namespace castor::bench

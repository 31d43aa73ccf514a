#include "tests/bench/load/least_squares.h"

#include <cmath>
#include <limits>

namespace castor::bench {

Line LeastSquares(const std::vector<Point>& points) {
  const auto n = static_cast<double>(points.size());
  Line line = {.standard_error = std::numeric_limits<double>::infinity()};
  Point mean;
  for (const Point& point : points) {
    mean.x += point.x / n;
    mean.y += point.y / n;
  }
  double xx = 0, xy = 0;
  for (const Point& point : points) {
    xx += (point.x - mean.x) * (point.x - mean.x);
    xy += (point.x - mean.x) * (point.y - mean.y);
  }
  if (xx <= 0) return line;
  line.slope = xy / xx;
  if (points.size() < 3) return line;
  double squares = 0;  // of what the line leaves
  for (const Point& point : points) {
    const double left = point.y - mean.y - line.slope * (point.x - mean.x);
    squares += left * left;
  }
  line.standard_error = std::sqrt(squares / (n - 2) / xx);
  return line;
}

}  // namespace castor::bench

// Axes of charts: from values to positions, and where their ticks are.
#pragma once

#include <string>
#include <vector>

namespace castor::load {

// Maps values to positions in a drawing, linearly or by their logarithm.
class Scale {
 public:
  // REQUIRE: low < high; for Log, 0 < low.
  static Scale Linear(double low, double high, double from, double to);
  static Scale Log(double low, double high, double from, double to);

  // Values beyond the ends are put at the ends.
  double At(double value) const;

  // Round values within the ends, at least two pixels' worth apart, about `count` of them:
  // multiples of 1, 2 or 5; for Log, powers of ten, with 2 and 5 of each where there is room.
  std::vector<double> Ticks(int count) const;

  double low() const { return low_; }
  double high() const { return high_; }

 private:
  Scale(double low, double high, double from, double to, bool log)
      : low_(low), high_(high), from_(from), to_(to), log_(log) {}

  double low_, high_, from_, to_;
  bool log_;
};

// The least round value (1, 2 or 5 times a power of ten) that is at least `value`; 1 for 0.
double RoundUp(double value);
double RoundDown(double value);

// A position with one decimal and no more characters than it needs: "12", "12.5".
std::string Position(double value);

}  // namespace castor::load

#include "client/load/output/scale.h"

#include <algorithm>
#include <cmath>

#include "client/cli/report.h"

namespace castor::load {
namespace {

// The power of ten at or below a value; the margin makes 1000 one of 10^3 despite rounding.
double PowerBelow(double value) { return std::pow(10, std::floor(std::log10(value) + 1e-9)); }

}  // namespace

Scale Scale::Linear(double low, double high, double from, double to) {
  return Scale(low, high, from, to, false);
}

Scale Scale::Log(double low, double high, double from, double to) {
  return Scale(low, high, from, to, true);
}

double Scale::At(double value) const {
  const double inside = std::clamp(value, low_, high_);
  const double share =
      log_ ? std::log(inside / low_) / std::log(high_ / low_) : (inside - low_) / (high_ - low_);
  return from_ + share * (to_ - from_);
}

std::vector<double> Scale::Ticks(int count) const {
  std::vector<double> ticks;
  if (!log_) {
    const double step = RoundUp((high_ - low_) / count);
    for (double k = std::ceil(low_ / step - 1e-9); k * step <= high_ * (1 + 1e-9); ++k) {
      ticks.push_back(k * step + 0.0);  // 0, not -0
    }
    return ticks;
  }
  const double decades = std::log10(high_ / low_);
  const bool fine = decades * 3 <= count;                         // 1, 2, 5
  const double skip = std::max(1.0, std::ceil(decades / count));  // powers of ten, not all
  for (double power = PowerBelow(low_); power <= high_ * (1 + 1e-9);
       power *= std::pow(10, fine ? 1 : skip)) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (digit > 1 && !fine) break;
      const double tick = power * digit;
      if (tick >= low_ * (1 - 1e-9) && tick <= high_ * (1 + 1e-9)) ticks.push_back(tick);
    }
  }
  return ticks;
}

double RoundUp(double value) {
  if (value <= 0) return 1;
  const double power = PowerBelow(value);
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (power * digit >= value * (1 - 1e-9)) return power * digit;
  }
  return power * 10;
}

double RoundDown(double value) {
  if (value <= 0) return 1;
  const double power = PowerBelow(value);
  for (const double digit : {5.0, 2.0}) {
    if (power * digit <= value * (1 + 1e-9)) return power * digit;
  }
  return power;
}

std::string Position(double value) {
  std::string text = cli::FormatReal(value, "%.1f");
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

}  // namespace castor::load

#include "client/load/schedule/rate_curve.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include "client/load/workload/overloaded.h"
#include "client/load/workload/portable_math.h"

namespace castor::load {
namespace {

constexpr int kSineParts = 256;  // of a period, in the table that the inverse begins with
constexpr int kMaxIterations = 64;

double InSeconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) * 1e-9; }

double Slope(const RampRate& ramp, double seconds) { return (ramp.to - ramp.from) / seconds; }

// Requests in a burst, and in a whole period.
double OfBurst(const BurstRate& bursts) { return bursts.burst * InSeconds(bursts.length); }
double OfPeriod(const BurstRate& bursts) {
  return OfBurst(bursts) + bursts.base * InSeconds(bursts.period - bursts.length);
}

double BurstsDueBy(const BurstRate& bursts, double time) {
  const double period = InSeconds(bursts.period), length = InSeconds(bursts.length);
  const double periods = std::floor(time / period);
  const double rest = time - periods * period;
  return periods * OfPeriod(bursts) + bursts.burst * std::min(rest, length) +
         bursts.base * std::max(rest - length, 0.0);
}

double BurstsTimeOf(const BurstRate& bursts, double due) {
  const double period = InSeconds(bursts.period), length = InSeconds(bursts.length);
  const double periods = std::floor(due / OfPeriod(bursts));
  const double rest = due - periods * OfPeriod(bursts);
  const double burst = OfBurst(bursts);
  const double in_period = rest <= burst || bursts.base == 0
                               ? rest / bursts.burst
                               : length + (rest - burst) / bursts.base;
  return periods * period + std::min(in_period, period);
}

}  // namespace

RateCurve::RateCurve(const Rate& rate, double seconds) : rate_(rate), seconds_(seconds) {
  if (const auto* steps = std::get_if<StepRate>(&rate_)) {
    const double width = seconds_ / static_cast<double>(steps->rates.size());
    table_.push_back(0);
    for (const double step : steps->rates) table_.push_back(table_.back() + step * width);
  } else if (const auto* sine = std::get_if<SineRate>(&rate_)) {
    const double period = InSeconds(sine->period);
    for (int i = 0; i <= kSineParts; ++i) {
      table_.push_back(SineDueBy(*sine, period * i / kSineParts));
    }
  }
  total_ = DueBy(seconds_);
}

double RateCurve::At(double time) const {
  return std::visit(
      Overloaded{[](const FlatRate& flat) { return flat.rate; },
                 [&](const RampRate& ramp) { return ramp.from + Slope(ramp, seconds_) * time; },
                 [&](const StepRate& steps) {
                   const auto count = static_cast<double>(steps.rates.size());
                   const double step = std::floor(time / seconds_ * count);
                   return steps.rates[static_cast<size_t>(std::clamp(step, 0.0, count - 1))];
                 },
                 [&](const SineRate& sine) {
                   return sine.mean +
                          sine.amplitude * CosOfTurns(time / InSeconds(sine.period) - 0.25);
                 },
                 [&](const BurstRate& bursts) {
                   const double period = InSeconds(bursts.period);
                   const double rest = time - std::floor(time / period) * period;
                   return rest < InSeconds(bursts.length) ? bursts.burst : bursts.base;
                 }},
      rate_);
}

double RateCurve::DueBy(double time) const {
  return std::visit(Overloaded{[&](const FlatRate& flat) { return flat.rate * time; },
                               [&](const RampRate& ramp) {
                                 return (ramp.from + 0.5 * Slope(ramp, seconds_) * time) * time;
                               },
                               [&](const StepRate& steps) {
                                 const auto count = static_cast<double>(steps.rates.size());
                                 const double width = seconds_ / count;
                                 const double step =
                                     std::clamp(std::floor(time / width), 0.0, count - 1);
                                 const auto index = static_cast<size_t>(step);
                                 return table_[index] + steps.rates[index] * (time - step * width);
                               },
                               [&](const SineRate& sine) { return SineDueBy(sine, time); },
                               [&](const BurstRate& bursts) { return BurstsDueBy(bursts, time); }},
                    rate_);
}

double RateCurve::TimeOf(double due) const {
  const double time = std::visit(
      Overloaded{[&](const FlatRate& flat) { return due / flat.rate; },
                 [&](const RampRate& ramp) {
                   // The usual solution of the quadratic equation, without its cancellation.
                   const double square = ramp.from * ramp.from + 2 * Slope(ramp, seconds_) * due;
                   const double sum = ramp.from + std::sqrt(std::max(square, 0.0));
                   return sum > 0 ? 2 * due / sum : 0;
                 },
                 [&](const StepRate& steps) {
                   const double width = seconds_ / static_cast<double>(steps.rates.size());
                   const auto next = std::upper_bound(table_.begin() + 1, table_.end() - 1, due);
                   const auto index = static_cast<size_t>(next - table_.begin()) - 1;
                   const double rate = steps.rates[index];
                   const double within = rate > 0 ? (due - table_[index]) / rate : 0;
                   return static_cast<double>(index) * width + std::min(within, width);
                 },
                 [&](const SineRate& sine) { return SineTimeOf(sine, due); },
                 [&](const BurstRate& bursts) { return BurstsTimeOf(bursts, due); }},
      rate_);
  return std::min(time, seconds_);
}

double RateCurve::SineDueBy(const SineRate& sine, double time) const {
  const double period = InSeconds(sine.period);
  return sine.mean * time +
         sine.amplitude * period / (2 * std::numbers::pi) * (1 - CosOfTurns(time / period));
}

// Newton's method, within a part of the table that it may not leave.
double RateCurve::SineTimeOf(const SineRate& sine, double due) const {
  const double period = InSeconds(sine.period);
  const double of_period = sine.mean * period;
  const double periods = std::floor(due / of_period);
  const double rest = due - periods * of_period;
  const auto next = std::upper_bound(table_.begin() + 1, table_.end() - 1, rest);
  const auto part = static_cast<double>(next - table_.begin()) - 1;
  double low = period * part / kSineParts, high = period * (part + 1) / kSineParts;
  const double missing = (rest - *(next - 1)) / (*next - *(next - 1));
  double time = *next > *(next - 1) ? low + missing * (high - low) : low;
  for (int i = 0; i < kMaxIterations; ++i) {
    const double error = SineDueBy(sine, time) - rest;
    (error > 0 ? high : low) = time;
    const double rate = At(time);
    double better = rate > 0 ? time - error / rate : low - 1;
    if (!(better >= low && better <= high)) better = low + 0.5 * (high - low);
    const bool settled = std::abs(better - time) <= 1e-13 * period;
    time = better;
    if (settled) break;
  }
  return periods * period + time;
}

}  // namespace castor::load

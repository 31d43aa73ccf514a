#include "tests/bench/load/after_jump.h"

#include <algorithm>

namespace castor::bench {
namespace {

constexpr std::chrono::duration<double> kFirst{2};
constexpr double kGap = 0.5;  // seconds between two ranges

// Those that are close to one another as one range.
std::string Ranges(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  std::string text;
  for (size_t begin = 0, end; begin < seconds.size(); begin = end) {
    for (end = begin + 1; end < seconds.size() && seconds[end] - seconds[end - 1] <= kGap;) ++end;
    const std::string first = Figure(seconds[begin]), last = Figure(seconds[end - 1]);
    text += (text.empty() ? "" : ", ") + first + (first == last ? "" : " to " + last) + " s (" +
            std::to_string(end - begin) + ")";
  }
  return text;
}

}  // namespace

void AfterJump::Stretch::Add(const Outcomes& outcomes, std::chrono::duration<double> from,
                             std::chrono::duration<double> to) {
  if (to <= from) return;
  seconds += (to - from).count();
  const auto in_it = [&](Clock::time_point time) {
    const std::chrono::duration<double> at = time - outcomes.begin;
    return at >= from && at < to;
  };
  for (const Outcome& call : outcomes.calls) {
    const Fate fate = FateOf(call, outcomes.deadline);
    good_answers += fate == Fate::kGood && in_it(call.ended);
    admitted += fate != Fate::kRefused && in_it(call.intended);
    late += fate == Fate::kLate && in_it(call.intended);
  }
}

std::string AfterJump::Stretch::Describe(double peak) const {
  if (seconds <= 0) return "n/a";
  const double goodput = 100 * static_cast<double>(good_answers) / seconds / peak;
  const double late_percent =
      admitted > 0 ? 100 * static_cast<double>(late) / static_cast<double>(admitted) : 0;
  return Figure(goodput, "%") + ", " + Figure(late_percent, "%");
}

void AfterJump::Add(const Outcomes& outcomes) {
  first_.Add(outcomes, std::chrono::seconds(0), std::min(kFirst, outcomes.length));
  rest_.Add(outcomes, kFirst, outcomes.length);
  for (const Outcome& call : outcomes.calls) {
    if (FateOf(call, outcomes.deadline) != Fate::kLate) continue;
    late_.push_back(Milliseconds(call.intended - outcomes.begin) / 1000);
  }
}

void AfterJump::Note(const std::string& name, double peak, Report& report) const {
  report.Note(name + "goodput, of the peak, and late, of those admitted: first 2 s; later",
              first_.Describe(peak) + "; " + rest_.Describe(peak));
  if (!late_.empty()) report.Note(name + "late ones were due at", Ranges(late_));
}

}  // namespace castor::bench

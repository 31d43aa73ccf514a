#include "client/load/output/text.h"

#include <cmath>
#include <cstdlib>

#include "client/cli/report.h"
#include "client/load/workload/objective.h"

namespace castor::load {
namespace {

using cli::FormatReal;

// A round duration, as short as it is exact.
std::string WithUnit(double nanoseconds, const char* micro) {
  const bool micros = nanoseconds < 1e6 * (1 - 1e-9), millis = nanoseconds < 1e9 * (1 - 1e-9);
  const double unit = micros ? 1e3 : millis ? 1e6 : 1e9;
  return FormatReal(nanoseconds / unit, "%.6g ") + (micros ? micro : millis ? "ms" : "s");
}

}  // namespace

std::string SecondsText(double seconds) {
  return seconds < 1000 ? FormatReal(seconds, "%.4g s")
                        : CountText(static_cast<int64_t>(seconds + 0.5)) + " s";
}

std::string PercentText(double part, double whole) {
  if (whole == 0) return "-";
  const double percent = 100 * part / whole;
  if (percent == 0 || percent == 100) return FormatReal(percent, "%.0f%%");
  if (percent < 0.0001) return "<0.0001%";
  if (percent < 1) return FormatReal(percent, "%.2g%%");
  // As many nines as it takes.
  for (const char* format : {"%.1f%%", "%.2f%%", "%.3f%%", "%.4f%%", "%.5f%%"}) {
    const std::string text = FormatReal(percent, format);
    if (percent > 100 || std::strtod(text.c_str(), nullptr) < 100) return text;
  }
  return "99.99999%";
}

std::string GoalText(const LatencyGoal& goal) {
  return QuantileName(goal.quantile) +
         " <= " + WithUnit(static_cast<double>(goal.limit.count()), "us");
}

std::string TimeSign(double nanoseconds) {
  std::string text = TimeText(nanoseconds);
  if (text.ends_with(" us")) text.replace(text.size() - 2, 1, "µ");
  return text;
}

std::string RoundTime(double nanoseconds) { return WithUnit(nanoseconds, "µs"); }

std::string GoalSign(const LatencyGoal& goal) {
  return QuantileName(goal.quantile) + " ≤ " + RoundTime(static_cast<double>(goal.limit.count()));
}

std::string ErrorText(double billionths) {
  return billionths == 0 ? "0" : FormatReal(billionths / 1e9, "%.2e");
}

}  // namespace castor::load

// Numbers and names as all outputs show them: to people, in English, with three digits that count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "client/load/workload/workload.h"

namespace castor::load {

std::string TimeText(double nanoseconds);  // "<1 us", "840 us", "12.4 ms", "1.24 s"
std::string ClockText(double seconds);     // "1:18", "1:02:03"
std::string CountText(int64_t count);      // "1,234,567"
std::string SecondsText(double seconds);   // of a plan: "60 s", "0.5 s", "3,600 s"
std::string RateText(double per_second);   // "0.500", "12.3", "4,980"
// "12.3%"; "-" of nothing. What is not all never reads 100%, and what is not none never 0%.
std::string PercentText(double part, double whole);
std::string GoalText(const LatencyGoal& goal);  // "p99 <= 50 ms"
// The same with the signs that a browser certainly has: "840 µs", "p99 ≤ 50 ms"; RoundTime for
// ticks of an axis: "50 ms", "2.5 s".
std::string TimeSign(double nanoseconds);
std::string RoundTime(double nanoseconds);
std::string GoalSign(const LatencyGoal& goal);
std::string ErrorText(double billionths);  // a relative error: "1.20e-07"

// Valid UTF-8 without control characters: each byte that is no part of it, and each control
// character but newline and tab, becomes U+FFFD.
std::string CleanText(std::string_view text);

// CleanText on one line, cut to `cells` columns of a terminal; an ellipsis says that it was. Never
// wider than that: where terminals differ on a character's width, it counts the greater.
std::string FitText(std::string_view text, size_t cells);
size_t CellsOf(std::string_view text);

}  // namespace castor::load

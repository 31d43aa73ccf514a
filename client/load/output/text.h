// Numbers and names as all outputs show them: to people, in English, with three digits that count.
#pragma once

#include <string>

#include "client/cli/text.h"
#include "client/load/workload/workload.h"

namespace castor::load {

using cli::CellsOf;
using cli::CleanText;
using cli::ClockText;
using cli::CountText;
using cli::FitText;
using cli::RateText;
using cli::TimeText;

std::string SecondsText(double seconds);  // of a plan: "60 s", "0.5 s", "3,600 s"
// "12.3%"; "-" of nothing. What is not all never reads 100%, and what is not none never 0%.
std::string PercentText(double part, double whole);
std::string GoalText(const LatencyGoal& goal);  // "p99 <= 50 ms"
// The same with the signs that a browser certainly has: "840 µs", "p99 ≤ 50 ms"; RoundTime for
// ticks of an axis: "50 ms", "2.5 s".
std::string TimeSign(double nanoseconds);
std::string RoundTime(double nanoseconds);
std::string GoalSign(const LatencyGoal& goal);
std::string ErrorText(double billionths);  // a relative error: "1.20e-07"

}  // namespace castor::load

// Durations and shares as people write them in workloads and objectives.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace castor::load {

// "50ms", "1.5s", "0s": a decimal number and one of ns, us, ms, s, m, h, without a sign. Rounded to
// a nanosecond; nullopt for anything else, and beyond 90 days.
std::optional<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// The shortest text that ParseDuration reads as `duration`, which is not negative: "50ms", "90s".
std::string FormatDuration(std::chrono::nanoseconds duration);

// "0.1%" is 0.001: a decimal number from 0 to 100.
std::optional<double> ParsePercent(std::string_view text);

// 0.999 is "99.9", such that ParsePercent(text + "%") gives exactly `share`, which is from 0 to 1.
std::string FormatPercent(double share);

}  // namespace castor::load

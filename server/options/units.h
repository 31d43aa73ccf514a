// Byte sizes and durations as people write them in flags: "64MiB", "5ms". Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace castor::server {

// A non-negative number, whole or decimal, and a unit in any case: B (or none), K Ki KiB, M Mi MiB,
// G Gi GiB, T Ti TiB (powers of 1024), KB MB GB TB (powers of 1000). nullopt if it is not a size or
// exceeds int64. Fractions of a byte are dropped.
std::optional<int64_t> ParseBytes(std::string_view text);

// A non-negative number, whole or decimal, and a unit: us, ms, s, m, h. Only "0" needs none.
std::optional<std::chrono::microseconds> ParseDuration(std::string_view text);

// The shortest exact text that the functions above read back: "256MiB", "30s".
std::string FormatBytes(int64_t bytes);
std::string FormatDuration(std::chrono::microseconds duration);

}  // namespace castor::server

// Checks of flags' values that are stricter than CLI11's own, which let NaN pass every range, read
// 010 as 8 and 1e999 as infinity, and treat an empty value as no value.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "client/utf8.h"

namespace castor::cli {

// A decimal number from `least` to `greatest`; whole where T is. For Option::transform: it removes
// leading zeros and a plus sign, which CLI11 would misread. T is int32_t, int64_t, uint64_t or
// double.
template <typename T>
CLI::Validator Number(T least, T greatest);

// "50ms", "1.5s", "0s": a decimal number and one of ns, us, ms, s, m, h, without a sign. Rounded to
// a nanosecond; nullopt for anything else, and beyond 90 days.
std::optional<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// The shortest text that ParseDuration reads as `duration`, which is not negative: "50ms", "90s".
std::string FormatDuration(std::chrono::nanoseconds duration);

// A time between two bounds in seconds: a duration, or a number of seconds. For Option::transform
// of a double, which it sets to seconds.
CLI::Validator Seconds(double least, double greatest);

// Text that goes into a message and must therefore be UTF-8.
CLI::Validator Utf8();

// UTF-8 that is not empty.
CLI::Validator Name();

// The name of a file, in any bytes.
CLI::Validator FileName();

// One of these names. For Option::transform of an option that takes their values.
template <typename Value>
CLI::Validator OneOf(const std::map<std::string, Value>& values) {
  return CLI::Validator(
      [values](std::string& input) -> std::string {
        const auto found = values.find(input);
        if (found != values.end()) {
          input = std::to_string(static_cast<int>(found->second));
          return "";
        }
        std::string names;
        for (const auto& [name, value] : values) names += (names.empty() ? "" : ", ") + name;
        return "'" + input + "' is not one of " + names;
      },
      "");
}

// Declares an option: the name of its type and the group are those of the help; `check` may also
// transform.
template <typename T>
CLI::Option* AddOption(CLI::App* command, const std::string& group, const std::string& flags,
                       T* value, const std::string& type, const std::string& help,
                       const CLI::Validator& check) {
  return command->add_option(flags, *value, help)->type_name(type)->transform(check)->group(group);
}

using client::FindInvalidUtf8;

}  // namespace castor::cli

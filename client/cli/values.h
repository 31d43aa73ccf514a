// Checks of flags' values that are stricter than CLI11's own, which let NaN pass every range, read
// 010 as 8 and 1e999 as infinity, and treat an empty value as no value.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "client/utf8.h"

namespace castor::cli {

// A decimal number within the two bounds, both included; whole where T is. For Option::transform:
// it removes leading zeros and a plus sign, which CLI11 would misread. T is int32_t, int64_t,
// uint64_t or double.
template <typename T>
CLI::Validator Number(T least, T greatest);

// A time within the two bounds, which are seconds: a number and ms, s, m or h, or of seconds
// without. For Option::transform of a double: it leaves seconds.
CLI::Validator Seconds(double least, double greatest);

// Text that goes into a message and must therefore be UTF-8.
CLI::Validator Utf8();

// The same, and not empty: a name.
CLI::Validator Name();

// The name of a file, in whatever bytes.
CLI::Validator FileName();

using client::FindInvalidUtf8;

}  // namespace castor::cli

// One table of a TOML file, read key by key. Values are checked, and unknown keys are refused.
// Errors name the place, the expected value and the actual one:
//
//   load.toml, line 12: class 'short': weight must be a number above 0, not -3
#pragma once

#include <toml++/toml.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/values.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// A range of numbers, both ends included unless `above`.
struct Range {
  double least = 0, greatest = 0;
  bool above = false;  // `least` itself is too small
};

// Refers to the table; for one thread. Every method throws cli::UsageError.
class TomlTable {
 public:
  // `what` names the table in errors: "[load]", "class 'short'".
  TomlTable(const toml::table& table, std::string file, std::string what);

  const std::string& file() const { return file_; }

  // The value; null if there is none. This and the methods below mark the key as known.
  const toml::node* Find(std::string_view key);
  bool Has(std::string_view key) { return Find(key) != nullptr; }

  // These leave `value` unchanged without the key.
  void Real(std::string_view key, Range range, double* value);
  void Whole(std::string_view key, int64_t least, int64_t greatest, int64_t* value);
  void Time(std::string_view key, std::chrono::nanoseconds least, std::chrono::nanoseconds greatest,
            std::chrono::nanoseconds* value);
  void Text(std::string_view key, std::string* value);  // UTF-8 without control characters
  void Texts(std::string_view key, std::vector<std::string>* values);
  // Sets the index of the value among `names`.
  void Choice(std::string_view key, const std::vector<std::string>& names, size_t* value);

  // A nested table: `key = {...}`. REQUIRES: the key is there.
  TomlTable SubTable(std::string_view key);

  // Read a value of an array.
  double RealOf(std::string_view key, const toml::node& node, Range range) const;
  int64_t WholeOf(std::string_view key, const toml::node& node, int64_t least,
                  int64_t greatest) const;

  // Refuses keys that were not read, and lists the known ones.
  void RefuseUnknownKeys() const;

  // Throws "KEY must be EXPECTED, not VALUE".
  [[noreturn]] void Refuse(std::string_view key, const toml::node& node,
                           const std::string& expected) const;
  // Throws another error, with the key's line if there is such a key.
  [[noreturn]] void Fail(std::string_view key, const std::string& message) const;

 private:
  const toml::table* table_;
  std::string file_, what_;
  std::vector<std::string> known_;
};

// Durations, shares and objectives, as workloads and flags write them.
using cli::FormatDuration;
using cli::ParseDuration;

// "0.1%" is 0.001: a decimal number from 0 to 100.
std::optional<double> ParsePercent(std::string_view text);

// 0.999 is "p99.9".
std::string QuantileName(double quantile);

// Adds a goal such as "p99 <= 50ms" or "errors <= 0.1%" to `objective`. Throws
// std::invalid_argument that shows the syntax if `text` is not a goal, or if the objective already
// has a goal for the same quantile or for errors.
void AddGoal(std::string_view text, Objective* objective);

}  // namespace castor::load

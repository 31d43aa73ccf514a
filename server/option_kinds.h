// The kinds of options that castor-server has, on top of CLI11: each with its environment variable,
// its default in the help, and a range. Used while options are parsed, by one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/units.h"

namespace castor::server {

// --max-message-bytes -> CASTOR_MAX_MESSAGE_BYTES.
std::string EnvironmentName(std::string_view flag);

// Whether the variable is set to something.
bool IsSet(const std::string& environment_name);

// CLI11 lets the file win over the environment; with this formatter the environment wins. Keys that
// no option has are errors that name the key.
class FileBelowEnvironment : public CLI::ConfigTOML {
 public:
  explicit FileBelowEnvironment(const CLI::App* app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

 private:
  const CLI::App* app_;
};

// Declares options of one kind each. Bad values throw CLI::ValidationError while CLI11 parses.
class Declarer {
 public:
  explicit Declarer(CLI::App* app) : app_(app) {}

  // `parse` stores the text and returns what is wrong with it, or "".
  CLI::Option* Text(const char* group, const std::string& flag, const std::string& type,
                    const std::string& default_text, const std::string& help,
                    std::function<std::string(const std::string&)> parse) {
    auto store = [flag, parse = std::move(parse)](const std::string& text) {
      if (const std::string problem = parse(text); !problem.empty()) {
        throw CLI::ValidationError(flag, "'" + text + "' " + problem);
      }
    };
    return app_->add_option_function<std::string>(flag, std::move(store), help)
        ->envname(EnvironmentName(flag))
        ->type_name(type)
        ->default_str(default_text)
        ->group(group);
  }

  template <typename T>
  void Number(const char* group, const std::string& flag, T* value, int64_t low, int64_t high,
              const std::string& help) {
    Text(group, flag, "N", std::to_string(*value), help + Range(low, high),
         [=](const std::string& text) -> std::string {
           int64_t number = 0;
           const char* end = text.data() + text.size();
           const auto [rest, error] = std::from_chars(text.data(), end, number);
           if (error != std::errc() || rest != end) return "is not a whole number";
           if (number < low || number > high) return "is out of range" + Range(low, high);
           *value = static_cast<T>(number);
           return "";
         });
  }

  void Bytes(const char* group, const std::string& flag, int64_t* value, int64_t low, int64_t high,
             const std::string& help) {
    const std::string range = " (" + FormatBytes(low) + " to " + FormatBytes(high) + ")";
    Text(group, flag, "SIZE", FormatBytes(*value), help + range,
         [=](const std::string& text) -> std::string {
           const std::optional<int64_t> bytes = ParseBytes(text);
           if (!bytes) return "is not a size such as 64MiB";
           if (*bytes < low || *bytes > high) return "is out of range" + range;
           *value = *bytes;
           return "";
         });
  }

  // A decimal number from 0 to 1.
  void Share(const char* group, const std::string& flag, double* value, const std::string& help) {
    char shown[32];
    const auto end = std::to_chars(shown, shown + sizeof(shown), *value).ptr;
    Text(group, flag, "X", std::string(shown, end), help + " (0 to 1)",
         [=](const std::string& text) -> std::string {
           double number = 0;
           const char* last = text.data() + text.size();
           const auto [rest, error] = std::from_chars(text.data(), last, number);
           if (error != std::errc() || rest != last) return "is not a number";
           if (!(number >= 0 && number <= 1)) return "is out of range (0 to 1)";
           *value = number;
           return "";
         });
  }

  template <typename Duration>
  void Time(const char* group, const std::string& flag, Duration* value,
            std::chrono::microseconds low, std::chrono::microseconds high,
            const std::string& help) {
    const std::string range = " (" + FormatDuration(low) + " to " + FormatDuration(high) + ")";
    Text(group, flag, "TIME", FormatDuration(*value), help + range,
         [=](const std::string& text) -> std::string {
           const auto duration = ParseDuration(text);
           if (!duration) return "is not a duration such as 5ms or 2s";
           if (*duration < low || *duration > high) return "is out of range" + range;
           if (std::chrono::duration_cast<Duration>(*duration) != *duration) {
             return "is finer than the unit of this setting, 1ms";
           }
           *value = std::chrono::duration_cast<Duration>(*duration);
           return "";
         });
  }

  template <typename T>
  void Choice(const char* group, const std::string& flag, T* value,
              const std::vector<std::pair<std::string, T>>& choices,
              const std::string& default_name, const std::string& help) {
    std::string names;
    for (const auto& [name, unused] : choices) names += (names.empty() ? "" : ", ") + name;
    Text(group, flag, "NAME", default_name, help + ": " + names,
         [=](const std::string& text) -> std::string {
           for (const auto& [name, chosen] : choices) {
             if (name != text) continue;
             *value = chosen;
             return "";
           }
           return "is none of " + names;
         });
  }

  // Takes --NAME, --no-NAME and --NAME=true|false.
  void Flag(const char* group, const std::string& flag, bool* value, const std::string& help) {
    app_->add_flag(flag + ",!--no-" + flag.substr(2), *value, help)
        ->envname(EnvironmentName(flag))
        ->default_str(*value ? "true" : "false")
        ->group(group);
  }

 private:
  static std::string Range(int64_t low, int64_t high) {
    return " (" + std::to_string(low) + " to " + std::to_string(high) + ")";
  }

  CLI::App* app_;
};

}  // namespace castor::server

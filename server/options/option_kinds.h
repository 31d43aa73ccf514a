// The kinds of castor-server's options, on top of CLI11: each with its environment variable, its
// default in the help, and a range. Used while options are parsed, by one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/option_bounds.h"
#include "server/options/config_file.h"
#include "server/options/units.h"

namespace castor::server {

// --max-message-bytes -> CASTOR_MAX_MESSAGE_BYTES.
std::string EnvironmentName(std::string_view flag);

// Whether the variable is set to something.
bool IsSet(const std::string& environment_name);

// "; did you mean --model?" for "--modle", by the nearest of the candidates; "" if none is near.
std::string DidYouMean(const std::string& typed, const std::vector<std::string>& candidates);
// The same for what the arguments hold and `app` has no option for; "" for any other error.
std::string DidYouMean(const CLI::App& app, const CLI::Error& error);

// Declares options of one kind each. Bad values throw CLI::ValidationError while CLI11 parses, and
// in ReadFile and Finish.
class Declarer {
 public:
  explicit Declarer(CLI::App* app) : app_(app) {}

  // Reads the options that neither a flag nor the environment has set from the file at `path`. Call
  // after CLI11 has parsed. Throws CLI::ConfigError, with the line, if the file is wrong.
  void ReadFile(const std::string& path);

  // Checks and stores the flags of Flag; last.
  void Finish();

  // The line of the file that set the option; 0: none did.
  int64_t LineOf(const std::string& flag) const;

  // `parse` stores the text; it returns an error text, or "".
  CLI::Option* Text(const char* group, const std::string& flag, const std::string& type,
                    const std::string& default_text, const std::string& help,
                    std::function<std::string(const std::string&)> parse,
                    std::vector<ConfigType> types = {ConfigType::kString}) {
    auto store = [flag, parse = std::move(parse)](const std::string& text) {
      if (const std::string problem = parse(text); !problem.empty()) {
        throw CLI::ValidationError(flag, "'" + text + "' " + problem);
      }
    };
    return Known(flag, std::move(types),
                 app_->add_option_function<std::string>(flag, std::move(store), help)
                     ->type_name(type)
                     ->default_str(default_text)
                     ->group(group));
  }

  // Any text.
  void Text(const char* group, const std::string& flag, const std::string& type, std::string* value,
            const std::string& help) {
    Text(group, flag, type, *value, help, [value](const std::string& text) -> std::string {
      *value = text;
      return "";
    });
  }

  // May be given several times, or several values separated by commas.
  void List(const char* group, const std::string& flag, const std::string& type,
            std::vector<std::string>* values, const std::string& help) {
    Known(flag, {ConfigType::kString, ConfigType::kStrings},
          app_->add_option(flag, *values, help)
              ->type_name(type)
              ->delimiter(',')
              ->allow_extra_args(false)
              ->group(group));
  }

  template <typename T>
  void Number(const char* group, const std::string& flag, T* value, OptionBounds bounds,
              const std::string& help) {
    const std::string range = Range(std::to_string(bounds.low), std::to_string(bounds.high));
    Text(group, flag, "N", std::to_string(*value), help + range,
         [=](const std::string& text) -> std::string {
           int64_t number = 0;
           const char* end = text.data() + text.size();
           const auto [rest, error] = std::from_chars(text.data(), end, number);
           if (error != std::errc() || rest != end) return "is not a whole number";
           if (number < bounds.low || number > bounds.high) return "is out of range" + range;
           *value = static_cast<T>(number);
           return "";
         },
         {ConfigType::kInteger});
  }

  void Bytes(const char* group, const std::string& flag, int64_t* value, OptionBounds bounds,
             const std::string& help) {
    const std::string range = Range(FormatBytes(bounds.low), FormatBytes(bounds.high));
    Text(group, flag, "SIZE", FormatBytes(*value), help + range,
         [=](const std::string& text) -> std::string {
           const std::optional<int64_t> bytes = ParseBytes(text);
           if (!bytes) return "is not a size such as 64MiB";
           if (*bytes < bounds.low || *bytes > bounds.high) return "is out of range" + range;
           *value = *bytes;
           return "";
         },
         {ConfigType::kString, ConfigType::kInteger});
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
         },
         {ConfigType::kFloat, ConfigType::kInteger});
  }

  template <typename Duration>
  void Time(const char* group, const std::string& flag, Duration* value,
            std::chrono::microseconds low, std::chrono::microseconds high,
            const std::string& help) {
    const std::string range = Range(FormatDuration(low), FormatDuration(high));
    Text(group, flag, "TIME", FormatDuration(*value), help + range,
         [=](const std::string& text) -> std::string {
           const auto duration = ParseDuration(text);
           if (!duration) return "is not a duration such as 5ms or 2s";
           if (*duration < low || *duration > high) return "is out of range" + range;
           if (std::chrono::duration_cast<Duration>(*duration) != *duration) {
             return "must be a whole number of milliseconds";
           }
           *value = std::chrono::duration_cast<Duration>(*duration);
           return "";
         },
         {ConfigType::kString, ConfigType::kInteger});
  }

  // Bounds in Duration's unit.
  template <typename Duration>
  void Time(const char* group, const std::string& flag, Duration* value, OptionBounds bounds,
            const std::string& help) {
    Time(group, flag, value, Duration(bounds.low), Duration(bounds.high), help);
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
           return "must be one of " + names;
         });
  }

  // Takes --NAME, --no-NAME and --NAME=true|false. Finish stores the value.
  void Flag(const char* group, const std::string& flag, bool* value, const std::string& help) {
    flags_.push_back({flag, *value ? "true" : "false", value});
    FlagText& text = flags_.back();
    Known(flag, {ConfigType::kBoolean},
          app_->add_flag(flag + ",!--no-" + flag.substr(2), text.text, help)
              ->default_str(text.text)
              ->group(group));
  }

 private:
  static std::string Range(const std::string& low, const std::string& high) {
    return " (" + low + " to " + high + ")";
  }

  struct Option {
    CLI::Option* option = nullptr;
    std::vector<ConfigType> types;  // that the file may give it
    int64_t line = 0;               // of the file that set it
  };
  // CLI11 reads 7 as true, and later versions ignore a bad variable.
  struct FlagText {
    std::string flag;
    std::string text;
    bool* value;
  };

  CLI::Option* Known(const std::string& flag, std::vector<ConfigType> types, CLI::Option* option);
  void ReadEntry(const std::string& path, const ConfigEntry& entry);

  CLI::App* app_;
  std::map<std::string, Option> options_;  // by flag
  std::list<FlagText> flags_;              // CLI11 keeps pointers into it
};

}  // namespace castor::server

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

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

template <typename Number>
std::string FormatNumber(Number number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

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

  // The heading in --help of the options that follow.
  void Group(const char* name) { group_ = name; }

  // `parse` stores the text; it returns an error text, or "".
  using Parse = std::function<std::string(const std::string&)>;
  void Text(const std::string& flag, const char* type, const std::string& default_text,
            const std::string& help, Parse parse,
            std::vector<ConfigType> types = {ConfigType::kString}) {
    auto store = [flag, parse = std::move(parse)](const std::string& text) {
      if (const std::string problem = parse(text); !problem.empty()) {
        throw CLI::ValidationError(flag, "'" + text + "' " + problem);
      }
    };
    Known(flag, std::move(types),
          app_->add_option_function<std::string>(flag, std::move(store), help)
              ->type_name(type)
              ->default_str(default_text));
  }

  // Any text.
  void Text(const std::string& flag, const char* type, std::string* value,
            const std::string& help) {
    Text(flag, type, *value, help, [value](const std::string& text) -> std::string {
      *value = text;
      return "";
    });
  }

  // May be given several times, or several values separated by commas.
  void List(const std::string& flag, const char* type, std::vector<std::string>* values,
            const std::string& help) {
    Known(flag, {ConfigType::kString, ConfigType::kStrings},
          app_->add_option(flag, *values, help)
              ->type_name(type)
              ->delimiter(',')
              ->allow_extra_args(false));
  }

  template <typename T>
  void Number(const std::string& flag, T* value, OptionBounds bounds, const std::string& help) {
    Ranged<T, int64_t>(flag, "N", value, {bounds.low, bounds.high}, help,
                       {&ParseNumber<int64_t>, &FormatNumber<int64_t>, "is not a whole number"},
                       {ConfigType::kInteger});
  }

  void Bytes(const std::string& flag, int64_t* value, OptionBounds bounds,
             const std::string& help) {
    Ranged<int64_t, int64_t>(flag, "SIZE", value, {bounds.low, bounds.high}, help,
                             {&ParseBytes, &FormatBytes, "is not a size such as 64MiB"},
                             {ConfigType::kString, ConfigType::kInteger});
  }

  // A decimal number from 0 to 1.
  void Share(const std::string& flag, double* value, const std::string& help) {
    Ranged<double, double>(flag, "X", value, {0, 1}, help,
                           {&ParseNumber<double>, &FormatNumber<double>, "is not a number"},
                           {ConfigType::kFloat, ConfigType::kInteger});
  }

  // Bounds in Duration's unit.
  template <typename Duration>
  void Time(const std::string& flag, Duration* value, OptionBounds bounds,
            const std::string& help) {
    Ranged<Duration, std::chrono::microseconds>(
        flag, "TIME", value, {Duration(bounds.low), Duration(bounds.high)}, help,
        {&ParseDuration, &FormatDuration, "is not a duration such as 5ms or 2s"},
        {ConfigType::kString, ConfigType::kInteger});
  }

  template <typename T>
  void Choice(const std::string& flag, T* value,
              const std::vector<std::pair<std::string, T>>& choices, const std::string& help) {
    std::string names, default_name;
    for (const auto& [name, choice] : choices) {
      names += (names.empty() ? "" : ", ") + name;
      if (choice == *value) default_name = name;
    }
    Text(flag, "NAME", default_name, help + ": " + names,
         [=](const std::string& text) -> std::string {
           for (const auto& [name, choice] : choices) {
             if (name != text) continue;
             *value = choice;
             return "";
           }
           return "must be one of " + names;
         });
  }

  // Takes --NAME, --no-NAME and --NAME=true|false. Finish stores the value.
  void Flag(const std::string& flag, bool* value, const std::string& help) {
    flags_.push_back({flag, *value ? "true" : "false", value});
    FlagText& text = flags_.back();
    Known(
        flag, {ConfigType::kBoolean},
        app_->add_flag(flag + ",!--no-" + flag.substr(2), text.text, help)->default_str(text.text));
  }

 private:
  // How values of a kind are read and written; `problem`: for a text that is none.
  template <typename V>
  struct ValueKind {
    std::optional<V> (*parse)(std::string_view);
    std::string (*format)(V);
    const char* problem;
  };

  // A value of a kind V, stored as a T.
  template <typename T, typename V>
  void Ranged(const std::string& flag, const char* type, T* value, std::pair<V, V> bounds,
              const std::string& help, ValueKind<V> kind, std::vector<ConfigType> types) {
    const std::string range =
        " (" + kind.format(bounds.first) + " to " + kind.format(bounds.second) + ")";
    Text(
        flag, type, kind.format(static_cast<V>(*value)), help + range,
        [=](const std::string& text) -> std::string {
          const std::optional<V> read = kind.parse(text);
          if (!read) return kind.problem;
          // Not a number is out of range, too.
          if (!(*read >= bounds.first && *read <= bounds.second)) return "is out of range" + range;
          if constexpr (requires { std::chrono::duration_cast<T>(*read); }) {
            *value = std::chrono::duration_cast<T>(*read);
            return *value == *read ? "" : "must be a whole number of milliseconds";
          } else {
            *value = static_cast<T>(*read);
            return "";
          }
        },
        std::move(types));
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

  void Known(const std::string& flag, std::vector<ConfigType> types, CLI::Option* option);
  void ReadEntry(const std::string& path, const ConfigEntry& entry);

  CLI::App* app_;
  std::string group_;
  std::map<std::string, Option> options_;  // by flag
  std::list<FlagText> flags_;              // CLI11 keeps pointers into it
};

}  // namespace castor::server

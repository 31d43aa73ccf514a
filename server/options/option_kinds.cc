#include "server/options/option_kinds.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <iterator>

namespace castor::server {

std::string EnvironmentName(std::string_view flag) {
  std::string name = "CASTOR_";
  for (char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

bool IsSet(const std::string& environment_name) {
  const char* value = std::getenv(environment_name.c_str());
  return value != nullptr && *value != '\0';
}

std::string DidYouMean(const std::string& typed, const std::vector<std::string>& candidates) {
  const auto sorted = [](std::string text) {
    std::sort(text.begin(), text.end());
    return text;
  };
  std::string nearest;
  size_t least = 4;  // letters that are too many or missing, in whatever order the others are
  for (const std::string& candidate : candidates) {
    const std::string a = sorted(typed), b = sorted(candidate);
    std::string differ;
    std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(),
                                  std::back_inserter(differ));
    if (differ.size() >= least) continue;
    least = differ.size();
    nearest = candidate;
  }
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

std::string DidYouMean(const CLI::App& app, const CLI::Error& error) {
  const std::vector<std::string> left = app.remaining();
  const bool extras = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (!extras || left.empty()) return "";
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return DidYouMean(left.front().substr(0, left.front().find('=')), flags);
}

void Declarer::Known(const std::string& flag, std::vector<ConfigType> types, CLI::Option* option) {
  options_[flag] = {option, std::move(types)};
  option->envname(EnvironmentName(flag))->group(group_);
}

void Declarer::ReadFile(const std::string& path) {
  const absl::StatusOr<std::vector<ConfigEntry>> entries = ReadConfigFile(path);
  if (!entries.ok()) throw CLI::ConfigError(path + ": " + std::string(entries.status().message()));
  for (const ConfigEntry& entry : *entries) ReadEntry(path, entry);
}

void Declarer::ReadEntry(const std::string& path, const ConfigEntry& entry) {
  const auto fail = [&](const std::string& problem) {
    throw CLI::ConfigError(path + ": line " + std::to_string(entry.line) + ": " + problem);
  };
  const auto found = options_.find("--" + entry.key);
  if (found == options_.end()) {
    std::vector<std::string> keys;
    for (const auto& [flag, option] : options_) keys.push_back(flag.substr(2));
    fail("unknown key '" + entry.key + "'" + DidYouMean(entry.key, keys));
  }
  Option& option = found->second;
  if (std::find(option.types.begin(), option.types.end(), entry.type) == option.types.end()) {
    std::string taken;
    for (const ConfigType type : option.types) {
      taken.append(taken.empty() ? "" : " or ").append(NameOf(type));
    }
    fail("'" + entry.key + "' takes " + taken + ", not " + std::string(NameOf(entry.type)));
  }
  if (option.option->count() > 0 || entry.texts.empty()) return;
  option.line = entry.line;
  for (const std::string& text : entry.texts) option.option->add_result(text);
  option.option->run_callback();
}

void Declarer::Finish() {
  constexpr auto kYes = std::to_array<std::string_view>({"true", "on", "yes", "1"});
  constexpr auto kNo = std::to_array<std::string_view>({"false", "off", "no", "0"});
  for (const FlagText& flag : flags_) {
    std::string text = flag.text;
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool yes = std::find(kYes.begin(), kYes.end(), text) != kYes.end();
    if (!yes && std::find(kNo.begin(), kNo.end(), text) == kNo.end()) {
      throw CLI::ValidationError(flag.flag, "'" + flag.text + "' is neither true nor false");
    }
    *flag.value = yes;
  }
}

int64_t Declarer::LineOf(const std::string& flag) const {
  const auto found = options_.find(flag);
  return found == options_.end() ? 0 : found->second.line;
}

}  // namespace castor::server

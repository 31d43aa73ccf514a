#include "server/options/config_file.h"

#include <toml++/toml.h>

#include <charconv>
#include <optional>

#include "server/auth/live_files.h"

namespace castor::server {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::Status BadAt(const toml::source_region& where, const std::string& what) {
  return Bad("line " + std::to_string(where.begin.line) + ": " + what);
}

template <typename Number>
std::string ToText(Number number) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

// Strings become arguments of system calls, where a NUL would end them.
std::optional<std::string> StringOf(const toml::node& node) {
  const auto* text = node.as_string();
  if (text == nullptr || text->get().find('\0') != std::string::npos) return std::nullopt;
  return text->get();
}

absl::StatusOr<ConfigEntry> ReadEntry(const toml::key& key, const toml::node& node) {
  ConfigEntry entry;
  entry.key = key.str();
  entry.line = key.source().begin.line;
  if (const auto text = StringOf(node)) {
    entry.type = ConfigType::kString;
    entry.texts = {*text};
  } else if (const auto* integer = node.as_integer()) {
    entry.type = ConfigType::kInteger;
    entry.texts = {ToText(integer->get())};
  } else if (const auto* number = node.as_floating_point()) {
    entry.type = ConfigType::kFloat;
    entry.texts = {ToText(number->get())};
  } else if (const auto* boolean = node.as_boolean()) {
    entry.type = ConfigType::kBoolean;
    entry.texts = {boolean->get() ? "true" : "false"};
  } else if (const auto* array = node.as_array()) {
    entry.type = ConfigType::kStrings;
    for (const toml::node& element : *array) {
      const auto element_text = StringOf(element);
      if (!element_text) {
        return BadAt(element.source(), "'" + entry.key + "' must hold only strings");
      }
      entry.texts.push_back(*element_text);
    }
  } else if (node.is_table()) {
    return BadAt(key.source(),
                 "unknown section [" + entry.key + "]: options must be top-level keys");
  } else {
    return BadAt(node.source(), "'" + entry.key + "' has a value of an unsupported type");
  }
  return entry;
}

}  // namespace

std::string_view NameOf(ConfigType type) {
  constexpr std::string_view kNames[] = {"a string", "an integer", "a number", "true or false",
                                         "an array of strings"};
  return kNames[static_cast<size_t>(type)];
}

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path);
  if (!text.ok()) return text.status();
  try {
    const toml::table table = toml::parse(*text);
    std::vector<ConfigEntry> entries;
    for (const auto& [key, node] : table) {
      absl::StatusOr<ConfigEntry> entry = ReadEntry(key, node);
      if (!entry.ok()) return entry.status();
      entries.push_back(*std::move(entry));
    }
    return entries;
  } catch (const toml::parse_error& error) {
    return BadAt(error.source(), std::string(error.description()));
  }
}

}  // namespace castor::server

#include "server/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

namespace castor::server {
namespace {

constexpr off_t kMaxBytes = 1 << 20;

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::Status BadAt(const toml::source_region& where, const std::string& what) {
  return Bad("line " + std::to_string(where.begin.line) + ": " + what);
}

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  // Opening a pipe would wait for its other end; do not open one.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return Bad(strerror(errno));
  std::string text;
  absl::Status status;
  struct stat about {};
  if (fstat(file, &about) != 0) {
    status = Bad(strerror(errno));
  } else if (!S_ISREG(about.st_mode)) {
    status = Bad("is no regular file");
  } else {
    // Read one byte more than is allowed: a file can grow, and some files report a size of 0.
    text.resize(kMaxBytes + 1);
    size_t filled = 0;
    for (ssize_t got = 1; got > 0 && filled < text.size(); filled += static_cast<size_t>(got)) {
      got = read(file, text.data() + filled, text.size() - filled);
      if (got < 0) {
        status = Bad(strerror(errno));
        break;
      }
    }
    text.resize(filled);
    if (filled > kMaxBytes) status = Bad("is larger than 1 MiB");
  }
  close(file);
  if (!status.ok()) return status;
  return text;
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
        return BadAt(element.source(), "'" + entry.key + "' holds something that is no string");
      }
      entry.texts.push_back(*element_text);
    }
  } else if (node.is_table()) {
    return BadAt(key.source(), "unknown section [" + entry.key + "]: keys stand alone");
  } else {
    return BadAt(node.source(), "'" + entry.key + "' has a value of a type that no option takes");
  }
  return entry;
}

}  // namespace

std::string_view NameOf(ConfigType type) {
  switch (type) {
    case ConfigType::kString:
      return "a string";
    case ConfigType::kInteger:
      return "an integer";
    case ConfigType::kFloat:
      return "a number";
    case ConfigType::kBoolean:
      return "true or false";
    case ConfigType::kStrings:
      return "an array of strings";
  }
  return "";
}

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadAll(path);
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

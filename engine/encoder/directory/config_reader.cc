#include "engine/encoder/directory/config_reader.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/hf/json.h"

namespace castor::encoder {

ConfigReader::ConfigReader(File file, nlohmann::json json, std::string path)
    : file_(file), json_(std::move(json)), path_(std::move(path)) {
  if (json_.is_object()) {
    status_ = CheckKeys(file, json_, path_);
  } else {
    status_ = absl::InvalidArgumentError(absl::StrCat(path_, ": is not a JSON object"));
  }
}

const nlohmann::json* ConfigReader::Lookup(std::string_view key) const {
  const std::string_view name = key.substr(0, key.find('.'));
  const Key* known = FindKey(file_, name);
  // A refused key may be read: its value is one that changes nothing.
  if (known == nullptr || known->use == Use::kIgnored) std::abort();  // a row is missing
  const nlohmann::json* at = &json_;
  while (at->is_object()) {
    const size_t dot = key.find('.');
    const auto found = at->find(std::string(key.substr(0, dot)));
    if (found == at->end()) return nullptr;
    if (dot == std::string_view::npos) return &*found;
    at = &*found;
    key.remove_prefix(dot + 1);
  }
  return nullptr;
}

const nlohmann::json* ConfigReader::Find(std::string_view key) const {
  const nlohmann::json* found = Lookup(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool ConfigReader::Has(std::string_view key) const { return Find(key) != nullptr; }

bool ConfigReader::IsNull(std::string_view key) const {
  const nlohmann::json* found = Lookup(key);
  return found != nullptr && found->is_null();
}

size_t ConfigReader::Count(std::string_view key) const {
  const nlohmann::json* value = Find(key);
  return value != nullptr && value->is_structured() ? value->size() : 0;
}

std::vector<std::string> ConfigReader::Keys(std::string_view key) {
  std::vector<std::string> keys;
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return keys;
  if (!value->is_object()) {
    Fail(key, "must be an object");
    return keys;
  }
  for (const auto& [name, unused] : value->items()) keys.push_back(name);
  return keys;
}

std::vector<std::string> ConfigReader::Strings(std::string_view key) {
  std::vector<std::string> strings;
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return strings;
  const bool list = value->is_array() && std::all_of(value->begin(), value->end(),
                                                     [](const auto& s) { return s.is_string(); });
  if (!list) {
    Fail(key, "must be a list of strings");
    return strings;
  }
  for (const nlohmann::json& string : *value) strings.push_back(string.get<std::string>());
  return strings;
}

std::vector<std::pair<std::string, std::string>> ConfigReader::StringsByName(std::string_view key) {
  std::vector<std::pair<std::string, std::string>> strings;
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return strings;
  if (!value->is_object()) Fail(key, "must be an object of strings");
  for (const auto& [name, string] : value->items()) {
    if (string.is_null()) {
      strings.emplace_back(name, "");
      continue;
    }
    if (!string.is_string()) {
      Fail(absl::StrCat(std::string(key), ".", name), "must be a string");
      return {};
    }
    strings.emplace_back(name, string.get<std::string>());
  }
  return strings;
}

void ConfigReader::Fail(std::string_view key, std::string_view problem) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(path_ + ": " + std::string(key) + ": " +  //
                                       std::string(problem));
}

int64_t ConfigReader::Int(std::string_view key, int64_t fallback, int64_t min, int64_t max) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  // The JSON library would wrap values beyond int64 silently.
  const bool wide = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
  if (!value->is_number_integer() || wide || value->get<int64_t>() < min ||
      value->get<int64_t>() > max) {
    Fail(key, absl::StrCat("must be an integer within ", min, "..", max));
    return fallback;
  }
  return value->get<int64_t>();
}

double ConfigReader::Double(std::string_view key, double fallback, double min, double max) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  // Written so that NaN fails.
  if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max)) {
    Fail(key, absl::StrCat("must be a number within ", min, "..", max));
    return fallback;
  }
  return value->get<double>();
}

bool ConfigReader::Bool(std::string_view key, bool fallback) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    Fail(key, "must be true or false");
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::String(std::string_view key, std::string_view fallback) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    Fail(key, "must be a string");
    return std::string(fallback);
  }
  return value->get<std::string>();
}

std::string ConfigReader::Label(std::string_view key, std::string_view fallback) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr || value->is_string()) return String(key, fallback);
  if (value->is_boolean()) return value->get<bool>() ? "True" : "False";
  if (value->is_number()) return value->dump();
  Fail(key, "must be a string or a number");
  return std::string(fallback);
}

absl::StatusOr<ConfigReader> ReadConfig(File file, const std::string& path) {
  absl::StatusOr<nlohmann::json> json = hf::ReadJson(path);
  if (!json.ok()) return json.status();
  ConfigReader reader(file, *std::move(json), path);
  if (!reader.status().ok()) return reader.status();
  return reader;
}

}  // namespace castor::encoder

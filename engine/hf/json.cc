#include "engine/hf/json.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/regular_file.h"

namespace castor::hf {

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path) {
  constexpr int64_t kMaxBytes = int64_t{16} << 20;  // a checkpoint's index: some MB
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxBytes);
  if (!text.ok()) return text.status();
  return ParseJson(*text, path);
}

absl::StatusOr<nlohmann::json> ParseJson(const std::string& text, const std::string& name) {
  using Event = nlohmann::json::parse_event_t;
  constexpr int kMaxDepth = 100;  // destroying a value recurses
  std::vector<std::set<std::string>> open_objects;
  std::string refused;
  const nlohmann::json::parser_callback_t check = [&](int depth, Event event,
                                                      nlohmann::json& parsed) {
    if (depth > kMaxDepth && refused.empty()) refused = "nested too deeply";
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key && !open_objects.back().insert(parsed.get<std::string>()).second &&
        refused.empty()) {
      refused = absl::StrCat("duplicate key \"", parsed.get<std::string>(), "\"");
    }
    return refused.empty();
  };
  try {
    nlohmann::json value = nlohmann::json::parse(text, check);
    if (!refused.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", refused));
    return value;
  } catch (const nlohmann::json::exception& error) {
    if (!refused.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", refused));
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", error.what()));
  }
}

}  // namespace castor::hf

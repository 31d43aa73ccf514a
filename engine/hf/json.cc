#include "engine/hf/json.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/regular_file.h"

namespace castor::hf {

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path) {
  constexpr int64_t kMaxBytes = int64_t{16} << 20;  // a checkpoint's index: some MB
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxBytes);
  if (!text.ok()) return text.status();
  return ParseJson(*text, path);
}

namespace {

// Python's json reads NaN, Infinity and -Infinity as numbers. Here they become strings, which
// readers of numbers refuse.
std::string QuoteSpecialNumbers(std::string_view text) {
  std::string quoted;
  size_t copied = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\') ++i;
    if (in_string) continue;
    for (const std::string_view number : {"-Infinity", "Infinity", "NaN"}) {
      if (text.substr(i, number.size()) != number) continue;
      absl::StrAppend(&quoted, std::string(text.substr(copied, i - copied)), "\"",
                      std::string(number), "\"");
      i += number.size() - 1;
      copied = i + 1;
      break;
    }
  }
  return copied == 0 ? std::string(text) : quoted.append(text.substr(copied));
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(const std::string& text, const std::string& name) {
  using Event = nlohmann::json::parse_event_t;
  constexpr int kMaxDepth = 100;  // destroying a value recurses
  bool too_deep = false;
  const nlohmann::json::parser_callback_t check = [&](int depth, Event, nlohmann::json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  const std::string problem = absl::StrCat(name, ": nested too deeply");
  try {
    if (text.starts_with("\xef\xbb\xbf")) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": begins with a byte order mark, which Python refuses: remove it"));
    }
    nlohmann::json value = nlohmann::json::parse(QuoteSpecialNumbers(text), check);
    if (too_deep) return absl::InvalidArgumentError(problem);
    return value;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(too_deep ? problem : absl::StrCat(name, ": ", error.what()));
  }
}

}  // namespace castor::hf

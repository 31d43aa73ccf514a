#include "client/load/measure/redact.h"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace castor::load {
namespace {

constexpr char kLeftOut[] = "# left out: castor-load found no way to remove its tokens\n";
constexpr char kPlaceholder[] = "(redacted)";

void FindTokens(const toml::node& node, std::vector<const toml::node*>& found) {
  if (const toml::table* const table = node.as_table()) {
    for (const auto& [key, value] : *table) {
      if (key.str() == "token" && value.value_or(std::string()) != kPlaceholder) {
        found.push_back(&value);
      }
      FindTokens(value, found);
    }
  } else if (const toml::array* const array = node.as_array()) {
    for (const toml::node& element : *array) FindTokens(element, found);
  }
}

// The byte at a position, which the parser gives as a line and a column of code points.
size_t ByteAt(std::string_view text, const toml::source_position& position) {
  size_t byte = 0;
  for (toml::source_index line = 1; line < position.line; ++line) {
    byte = std::min(text.find('\n', byte), text.size() - 1) + 1;
  }
  for (toml::source_index column = 1; column < position.column && byte < text.size(); ++column) {
    do ++byte;
    while (byte < text.size() && (text[byte] & 0xc0) == 0x80);
  }
  return byte;
}

// nullopt: no TOML.
std::optional<std::string> Redacted(std::string text, bool* clean) {
  try {
    const toml::table parsed = toml::parse(text);
    std::vector<const toml::node*> tokens;
    FindTokens(parsed, tokens);
    *clean = tokens.empty();
    // From the last, so that the places of those before it stay.
    std::sort(tokens.begin(), tokens.end(), [](const toml::node* a, const toml::node* b) {
      return b->source().begin < a->source().begin;
    });
    for (const toml::node* const token : tokens) {
      const size_t begin = ByteAt(text, token->source().begin);
      const size_t end = ByteAt(text, token->source().end);
      if (end <= begin) return std::nullopt;
      text.replace(begin, end - begin, std::string("\"") + kPlaceholder + "\"");
    }
    return text;
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string RedactTokens(std::string_view workload_toml) {
  bool clean = false;
  std::optional<std::string> text = Redacted(std::string(workload_toml), &clean);
  if (text && clean) return *text;
  // Whether it worked is not taken on trust.
  if (text) text = Redacted(*text, &clean);
  return text && clean ? *text : kLeftOut;
}

}  // namespace castor::load

// Makes foreign text safe for a terminal.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace castor::client {

// The index of the first byte that is not part of valid UTF-8.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// One character of valid UTF-8: its bytes and its code point.
struct Character {
  std::string_view bytes;
  char32_t code = 0;
};
Character FirstOf(std::string_view text);  // REQUIRES: valid, not empty

// Whether a terminal would obey it: it moves the cursor, colours, or turns the text's direction.
bool IsControl(char32_t code);

// Replaces invalid bytes, and control characters other than newline and tab, by U+FFFD.
std::string CleanText(std::string_view text);

// CleanText on one line: newlines and tabs become spaces.
std::string CleanLine(std::string_view text);

}  // namespace castor::client

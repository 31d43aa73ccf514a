// Text that came from elsewhere, as a terminal may see it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace castor::client {

// The index of the first byte that is not part of valid UTF-8.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// One character of valid UTF-8, and what it is.
struct Character {
  std::string_view bytes;
  char32_t code = 0;
};
Character FirstOf(std::string_view text);  // which is valid and not empty

// Whether it moves the cursor, colours, or turns the direction of the text around it.
bool IsControl(char32_t code);

// Valid UTF-8 without control characters: each byte that is no part of it, and each control
// character but newline and tab, becomes U+FFFD.
std::string CleanText(std::string_view text);

// The same on one line: newlines and tabs become spaces.
std::string CleanLine(std::string_view text);

}  // namespace castor::client

#include "client/utf8.h"

#include <algorithm>

namespace castor::client {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// The bytes that follow a leading byte. Some narrow the second byte's range, which excludes
// overlong forms, surrogates and everything beyond U+10FFFF.
struct Lead {
  int followers;
  unsigned char least = 0x80, greatest = 0xbf;
};

std::optional<Lead> LeadOf(unsigned char byte) {
  if (byte < 0x80) return Lead{0};
  if (byte >= 0xc2 && byte <= 0xdf) return Lead{1};
  if (byte == 0xe0) return Lead{2, 0xa0, 0xbf};
  if (byte == 0xed) return Lead{2, 0x80, 0x9f};
  if (byte >= 0xe1 && byte <= 0xef) return Lead{2};
  if (byte == 0xf0) return Lead{3, 0x90, 0xbf};
  if (byte == 0xf4) return Lead{3, 0x80, 0x8f};
  if (byte >= 0xf1 && byte <= 0xf3) return Lead{3};
  return std::nullopt;
}

// A fast path for most texts.
bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\t'; });
}

}  // namespace

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const auto lead = LeadOf(byte(i));
    if (!lead || text.size() - i <= static_cast<size_t>(lead->followers)) return i;
    for (int k = 1; k <= lead->followers; ++k) {
      const unsigned char least = k == 1 ? lead->least : 0x80;
      const unsigned char greatest = k == 1 ? lead->greatest : 0xbf;
      if (byte(i + k) < least || byte(i + k) > greatest) return i;
    }
    i += 1 + lead->followers;
  }
  return std::nullopt;
}

Character FirstOf(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t code = size == 1 ? lead : lead & (0xff >> (size + 1));
  for (size_t i = 1; i < size; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
  return {text.substr(0, size), code};
}

bool IsControl(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) ||
         // Line separators, and controls of text direction.
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string CleanText(std::string_view text) {
  if (IsPlain(text)) return std::string(text);
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    // Copy up to the first invalid byte, replace that byte, and go on.
    const size_t valid = FindInvalidUtf8(text).value_or(text.size());
    for (std::string_view rest = text.substr(0, valid); !rest.empty();) {
      const Character character = FirstOf(rest);
      const bool keep =
          !IsControl(character.code) || character.code == '\n' || character.code == '\t';
      clean += keep ? character.bytes : kReplacement;
      rest.remove_prefix(character.bytes.size());
    }
    text.remove_prefix(valid);
    if (!text.empty()) {
      clean += kReplacement;
      text.remove_prefix(1);
    }
  }
  return clean;
}

std::string CleanLine(std::string_view text) {
  std::string clean = CleanText(text);
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return clean;
}

}  // namespace castor::client

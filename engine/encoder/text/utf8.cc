#include "engine/encoder/text/utf8.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace castor::encoder {
namespace {

// The length of the valid character at `p`, which has `left` > 0 bytes; 0 when it is not valid.
size_t CharacterLength(const unsigned char* p, size_t left) {
  const unsigned char lead = p[0];
  if (lead < 0x80) return 1;
  // Only the second byte's range depends on the first: it excludes overlong forms (E0, F0),
  // surrogates (ED) and what lies beyond U+10FFFF (F4).
  unsigned char low = 0x80, high = 0xBF;
  size_t length = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (left < length || p[1] < low || p[1] > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((p[i] & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = p + text.size();
  while (p < end) {
    uint64_t word;
    if (end - p >= 8 && (std::memcpy(&word, p, 8), (word & 0x8080808080808080) == 0)) {
      p += 8;  // ASCII
      continue;
    }
    const size_t length = CharacterLength(p, static_cast<size_t>(end - p));
    if (length == 0) return false;
    p += length;
  }
  return true;
}

}  // namespace castor::encoder

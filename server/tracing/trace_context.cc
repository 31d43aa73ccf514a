#include "server/tracing/trace_context.h"

#include <algorithm>

namespace castor::server {
namespace {

constexpr size_t kTraceparentBytes = 55;
constexpr size_t kMaxStateMembers = 32;
constexpr uint8_t kSampledFlag = 1;
constexpr char kDigits[] = "0123456789abcdef";

// -1: not a lower-case digit.
int ValueOf(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

// Fills `bytes` from twice as many digits.
bool ReadHex(std::string_view digits, uint8_t* bytes) {
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = ValueOf(digits[i]);
    const int low = ValueOf(digits[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i / 2] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

template <typename Id>
bool AllZero(const Id& id) {
  return std::all_of(id.begin(), id.end(), [](uint8_t byte) { return byte == 0; });
}

template <typename Id>
std::string HexOf(const Id& id) {
  std::string text(2 * id.size(), '0');
  for (size_t i = 0; i < id.size(); ++i) {
    text[2 * i] = kDigits[id[i] >> 4];
    text[2 * i + 1] = kDigits[id[i] & 15];
  }
  return text;
}

bool IsWhole(const TraceContext& context) {
  return !IsZero(context.trace) && !IsZero(context.span);
}

}  // namespace

bool IsZero(const TraceId& id) { return AllZero(id); }
bool IsZero(const SpanId& id) { return AllZero(id); }

std::string ToHex(const TraceId& id) { return HexOf(id); }
std::string ToHex(const SpanId& id) { return HexOf(id); }

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kTraceparentBytes) return std::nullopt;
  if (header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  uint8_t version = 0;
  uint8_t flags = 0;
  TraceContext context;
  if (!ReadHex(header.substr(0, 2), &version) || !ReadHex(header.substr(53, 2), &flags) ||
      !ReadHex(header.substr(3, 32), context.trace.data()) ||
      !ReadHex(header.substr(36, 16), context.span.data())) {
    return std::nullopt;
  }
  const bool longer = header.size() > kTraceparentBytes;
  if (version == 0xff || (version == 0 && longer)) return std::nullopt;
  if (longer && header[kTraceparentBytes] != '-') return std::nullopt;
  context.sampled = (flags & kSampledFlag) != 0;
  return IsWhole(context) ? std::optional(context) : std::nullopt;
}

std::string_view UsableTraceState(std::string_view header) {
  const bool usable =
      header.size() <= kMaxTraceStateBytes &&
      std::all_of(header.begin(), header.end(), [](char c) { return c >= 0x20 && c <= 0x7e; }) &&
      static_cast<size_t>(std::count(header.begin(), header.end(), ',')) < kMaxStateMembers;
  return usable ? header : std::string_view();
}

}  // namespace castor::server

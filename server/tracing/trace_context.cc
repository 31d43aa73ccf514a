#include "server/tracing/trace_context.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/random/random.h"
#include "absl/strings/escaping.h"

namespace castor::server {
namespace {

constexpr size_t kTraceparentBytes = 55;
constexpr size_t kMaxStateMembers = 32;
constexpr uint8_t kSampledFlag = 1;
constexpr int kSampledBits = 56;

// Fills `bytes` from twice as many lower-case digits.
bool ReadHex(std::string_view digits, std::span<uint8_t> bytes) {
  digits = digits.substr(0, 2 * bytes.size());
  if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) return false;
  absl::HexStringToBytes({digits.data(), digits.size()})
      .copy(reinterpret_cast<char*>(bytes.data()), bytes.size());
  return true;
}

// Never all zero, which is no id.
template <typename Id>
Id NewId() {
  thread_local absl::BitGen generator;
  Id id;
  for (size_t i = 0; i < sizeof(id); i += sizeof(uint64_t)) {
    const uint64_t word = absl::Uniform<uint64_t>(generator);
    std::memcpy(id.data() + i, &word, sizeof(word));
  }
  id[0] |= static_cast<uint8_t>(id == Id{});
  return id;
}

}  // namespace

std::string ToHex(std::span<const uint8_t> id) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(id.data()), id.size()});
}

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kTraceparentBytes) return std::nullopt;
  if (header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  uint8_t version = 0;
  uint8_t flags = 0;
  TraceContext context;
  if (!ReadHex(header, {&version, 1}) || !ReadHex(header.substr(3), context.trace) ||
      !ReadHex(header.substr(36), context.span) || !ReadHex(header.substr(53), {&flags, 1}) ||
      context.trace == TraceId{} || context.span == SpanId{}) {
    return std::nullopt;
  }
  const bool longer = header.size() > kTraceparentBytes;
  if (version == 0xff || (version == 0 && longer)) return std::nullopt;
  if (longer && header[kTraceparentBytes] != '-') return std::nullopt;
  context.sampled = (flags & kSampledFlag) != 0;
  return context;
}

std::string_view UsableTraceState(std::string_view header) {
  const bool usable =
      header.size() <= kMaxTraceStateBytes &&
      std::all_of(header.begin(), header.end(), [](char c) { return c >= 0x20 && c <= 0x7e; }) &&
      static_cast<size_t>(std::count(header.begin(), header.end(), ',')) < kMaxStateMembers;
  return usable ? header : std::string_view();
}

TraceId NewTraceId() { return NewId<TraceId>(); }
SpanId NewSpanId() { return NewId<SpanId>(); }

Sampler::Sampler(double share)
    : rejected_(static_cast<uint64_t>(std::llround(std::ldexp(1 - share, kSampledBits)))) {}

bool Sampler::Takes(const std::optional<TraceContext>& parent, const TraceId& trace) const {
  if (rejected_ == uint64_t{1} << kSampledBits) return false;
  if (parent.has_value()) return parent->sampled;
  uint64_t random = 0;
  for (size_t i = trace.size() - kSampledBits / 8; i < trace.size(); ++i) {
    random = (random << 8) | trace[i];
  }
  return random >= rejected_;
}

}  // namespace castor::server

// What a caller says about the trace that its call belongs to: the headers `traceparent` and
// `tracestate` (https://www.w3.org/TR/trace-context/).
//
// Pure functions. What is no such header is no error: the call is then the first of its trace.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace castor::server {

using TraceId = std::array<uint8_t, 16>;  // all zero: none
using SpanId = std::array<uint8_t, 8>;    // the same

// One span of a trace, as others refer to it.
struct TraceContext {
  TraceId trace{};
  SpanId span{};
  bool sampled = false;

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

bool IsZero(const TraceId& id);
bool IsZero(const SpanId& id);

// "4bf92f3577b34da6a3ce929d0e0e4736".
std::string ToHex(const TraceId& id);
std::string ToHex(const SpanId& id);

// "00-TRACE-SPAN-FLAGS": lower-case hexadecimal digits, neither id zero. Of a version that is not
// known yet, what follows the flags is ignored; there is no version ff.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// `tracestate` as it goes on to the collector: what it says if that is printable and fits into 512
// bytes and 32 members, else nothing.
inline constexpr size_t kMaxTraceStateBytes = 512;
std::string_view UsableTraceState(std::string_view header);

}  // namespace castor::server

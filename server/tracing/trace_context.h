// Which trace a call belongs to: what its caller says in the headers `traceparent` and `tracestate`
// (https://www.w3.org/TR/trace-context/), ids of our own, and which traces are sampled. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

// "4bf92f3577b34da6a3ce929d0e0e4736".
std::string ToHex(std::span<const uint8_t> id);

// "00-TRACE-SPAN-FLAGS": lower-case hexadecimal digits, neither id zero. Of a version that is not
// known yet, what follows the flags is ignored; there is no version ff. What is no such header is
// no error: the call is then the first of its trace.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// `tracestate` as it goes on to the collector: what it says if that is printable and fits into 512
// bytes and 32 members, else nothing.
inline constexpr size_t kMaxTraceStateBytes = 512;
std::string_view UsableTraceState(std::string_view header);

// Random enough never to meet, and no secret.
TraceId NewTraceId();
SpanId NewSpanId();

// Which traces are recorded. One that the caller has decided on is recorded if the caller says so:
// traces have no holes. Of those that begin here, a share is. It depends on the trace id alone, as
// OpenTelemetry's samplers compare it: the last 56 bits against a threshold. With a share of 0
// nothing is recorded, whatever callers say.
class Sampler {
 public:
  explicit Sampler(double share);  // 0 to 1

  bool Takes(const std::optional<TraceContext>& parent, const TraceId& trace) const;

 private:
  uint64_t rejected_ = 0;  // of 2^56, the lowest so many
};

}  // namespace castor::server

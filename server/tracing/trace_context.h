// The trace of a call: the headers `traceparent` and `tracestate`
// (https://www.w3.org/TR/trace-context/), new ids, and the choice of traces to record. Any thread.
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

// "00-TRACE-SPAN-FLAGS": lower-case hexadecimal digits, neither id zero. In later versions the text
// after the flags is ignored; version ff does not exist. Nothing for any other text: the call is
// then the first of its trace.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// `tracestate` for the collector: the header if it is printable, with at most 512 bytes and 32
// members; else nothing.
inline constexpr size_t kMaxTraceStateBytes = 512;
std::string_view UsableTraceState(std::string_view header);

// Random: two ids are never equal in practice. Not a secret.
TraceId NewTraceId();
SpanId NewSpanId();

// Chooses the traces to record. A caller's decision is followed, so that traces have no holes. Of
// traces that begin here a share is recorded. The choice depends on the trace id alone, as in
// OpenTelemetry's samplers: the last 56 bits are compared with a threshold. With a share of 0
// nothing is recorded, whatever callers say.
class Sampler {
 public:
  explicit Sampler(double share);  // 0 to 1

  bool Takes(const std::optional<TraceContext>& parent, const TraceId& trace) const;

 private:
  uint64_t rejected_ = 0;  // ids with lower last 56 bits are not recorded
};

}  // namespace castor::server

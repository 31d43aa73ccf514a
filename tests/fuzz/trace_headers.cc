// What a caller says in headers about traces: `traceparent` and `tracestate`. The same bytes as
// each of them.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/tracing/trace_context.h"

namespace {

using namespace castor::server;

void Require(bool holds) {
  if (!holds) std::abort();
}

// What was read says the same again.
void CheckTraceparent(std::string_view header) {
  const auto context = ParseTraceparent(header);
  if (!context) return;
  Require(context->trace != TraceId{} && context->span != SpanId{});
  const std::string trace = ToHex(context->trace);
  const std::string span = ToHex(context->span);
  Require(header.substr(3, 32) == trace && header.substr(36, 16) == span);
  const std::string again = "00-" + trace + "-" + span + (context->sampled ? "-01" : "-00");
  Require(ParseTraceparent(again) == context);
  Require(header.size() == again.size() || header.substr(0, 2) != "00");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view header(reinterpret_cast<const char*>(data), size);
  CheckTraceparent(header);
  const std::string_view state = UsableTraceState(header);
  Require(state.empty() || state == header);
  Require(state.size() <= kMaxTraceStateBytes);
  Require(std::all_of(state.begin(), state.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
  return 0;
}

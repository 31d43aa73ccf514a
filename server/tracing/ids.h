// Ids of traces and spans, and which traces are sampled.
//
// Any thread. The ids are random enough never to meet, and no secret: they come from a generator of
// each thread's own, which the system seeds.
#pragma once

#include <cstdint>
#include <optional>

#include "server/tracing/trace_context.h"

namespace castor::server {

TraceId NewTraceId();
SpanId NewSpanId();

// The span and trace of a batch of the engine's: who knows its id knows them, without asking. Of
// `seed`, one for a process.
TraceContext BatchContext(uint64_t seed, uint64_t batch);

uint64_t NewBatchSeed();

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

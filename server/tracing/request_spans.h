// Turns what is kept of a request into its spans.
#pragma once

#include <cstdint>

#include "opentelemetry/proto/trace/v1/trace.pb.h"
#include "server/tracing/request_trace.h"

namespace castor::server {

using opentelemetry::proto::trace::v1::ScopeSpans;

// The monotonic clock's times as nanoseconds since 1970, as both clocks stand now.
struct WallClock {
  static WallClock Now();

  int64_t At(TimePoint time) const { return offset + time.time_since_epoch().count(); }

  int64_t offset;
};

// Adds the request's spans:
//
//   castor.v1.AttentionService/Attend    SERVER; a child of the caller's span
//     decode                             from the headers to the queue, tokenizing included
//     queue
//     batch
//       copy_in compute copy_out         the device's
//     encode
//
// The stages of a batch are placed by its times and the device's durations: copy_in from its begin,
// compute and copy_out up to its end. A device that copies nothing has no copies. A request that
// was admitted and not answered by the engine has `engine` in the place of queue, batch and encode.
void AddRequest(const RequestTrace& request, WallClock clock, ScopeSpans* out);

}  // namespace castor::server

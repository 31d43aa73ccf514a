// From what is kept of a request to its spans, and from those of a batch to the batch's own.
#pragma once

#include <cstdint>
#include <map>

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
//     batch                              links to the batch's own span, `batch`
//       copy_in compute copy_out         the device's
//     encode
//
// The stages of a batch are placed by its times and the device's durations: copy_in from its begin,
// compute and copy_out up to its end. A device that copies nothing has no copies. A request that
// was admitted and not answered by the engine has `engine` in the place of queue, batch and encode.
void AddRequest(const RequestTrace& request, const TraceContext& batch, WallClock clock,
                ScopeSpans* out);

// The batches of sampled requests, until each becomes a span of its own: once, in a trace of its
// own, with links to the sampled requests that travelled in it. For one thread at a time.
class BatchSpans {
 public:
  static constexpr size_t kMaxLinks = 128;
  static constexpr size_t kMaxWaiting = 4096;

  explicit BatchSpans(uint64_t seed) : seed_(seed) {}

  TraceContext ContextOf(const RequestTrace& request) const {
    return BatchContext(seed_, request.batch.id);
  }

  // One more request of its batch, which ran. The batch is due `settle` after its first: until
  // then the others are answered, too.
  void Add(const RequestTrace& request, WallClock clock, TimePoint due);

  // Moves to `out` those that are due at `now`, and the oldest of too many.
  void Take(TimePoint now, ScopeSpans* out);

 private:
  struct Batch {
    TimePoint due;
    opentelemetry::proto::trace::v1::Span span;
    int64_t sampled = 0;
  };

  const uint64_t seed_;
  std::map<uint64_t, Batch> waiting_;  // by id: the oldest first
};

}  // namespace castor::server

// What a call's headers say about its trace, and what is kept of the call if it is sampled.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>
#include <optional>

#include "server/metrics/metrics.h"
#include "server/tracing/trace_context.h"
#include "server/tracing/tracer.h"

namespace castor::server {

struct CallTrace {
  std::optional<TraceContext> caller;     // by its headers
  std::unique_ptr<RequestTrace> sampled;  // null: it is not

  // The ids for its log lines: of its own span, or, of a call that is not sampled, the caller's
  // trace with no span. Both empty if there is neither.
  std::string trace_id() const;
  std::string span_id() const;
};

// For Attend, Encode and each message of their streams. The headers of a caller who is not let in
// (`known` is false) are not believed: such a call is the first of its trace.
CallTrace BeginTrace(const Tracer& tracer, const grpc::ServerContextBase& context, Method method,
                     bool known);

}  // namespace castor::server

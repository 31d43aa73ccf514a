// Shared by all methods of all services: the server's parts, and the record of one call. Any thread
// may use them.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "engine/engine.h"
#include "server/auth/caller_authorizer.h"
#include "server/codec/decode_budget.h"
#include "server/errors.h"
#include "server/lifecycle/lifecycle.h"
#include "server/metrics/load_report.h"
#include "server/metrics/metrics.h"
#include "server/shared_memory.h"
#include "server/tracing/trace_context.h"
#include "server/tracing/tracer.h"
#include "server/transport/call.h"
#include "server/transport/call_table.h"

namespace castor::server {

class OpenStreams;

// Borrowed from the Server, which outlives every call.
struct ServiceContext {
  Engine& engine;
  Lifecycle& lifecycle;
  Metrics& metrics;
  SharedMemory& shared_memory;
  DecodeBudget& decoding;
  CallTable& calls;
  OpenStreams& streams;
  const Authorizer& authorizer;
  std::chrono::milliseconds max_deadline;  // caps every call's deadline
  std::function<void()> on_engine_fault;   // must not block; may be called more than once
  Tracer* tracer = nullptr;                // none: nothing is traced
  LoadReports* load_reports = nullptr;     // none: answers carry none
};

// The trace that a call's headers name, and the record of the call for its spans if it is sampled.
struct CallTrace {
  std::optional<TraceContext> caller;     // by its headers
  std::unique_ptr<RequestTrace> sampled;  // null: it is not

  // The ids for its log lines: of its own span, or, of a call that is not sampled, the caller's
  // trace with no span. Both empty if there is neither.
  std::string trace_id() const;
  std::string span_id() const;
};

// Begins the trace of a call of the method `name`, a literal, or of a message of its stream.
// Headers of callers that were refused (`known` is false) are ignored: such a call is the first of
// its trace.
CallTrace BeginTrace(const Tracer& tracer, const Call& call, std::string_view name, bool known);

// One call, or message of a stream, from its handler's first line to its last byte: counted in and
// out of the lifecycle, and in the metrics, the log and its trace once its answer is known.
class CallRecord {
 public:
  // `name` is the method's own, a literal; `method` stands for it in metrics.
  CallRecord(const ServiceContext& services, Method method, std::string_view name,
             CallTrace trace = {});
  ~CallRecord();
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;

  // False while the server drains: answer with Draining().
  bool accepted() const { return accepted_; }
  static absl::Status Draining();
  static absl::Status CallerGone();

  TimePoint received() const { return received_; }
  // Until the answer is counted; null: the call is not sampled.
  RequestTrace* trace() const { return trace_.sampled.get(); }
  double elapsed_us() const;
  // The time by which the call must be answered.
  TimePoint DeadlineOf(const Call& call) const { return call.deadline(services_.max_deadline); }

  // Counts the request's bytes.
  void Received(size_t bytes) { services_.metrics.ReceivedBytes(method_, bytes); }

  // Counts the answer. Call this or Refused exactly once, just before the transport gets the
  // answer, so that a caller that has its answer also sees it counted. None of the three throws:
  // without memory, the log or the trace lacks it.
  void Answered(size_t bytes, const Subject& subject, std::string_view request_id) noexcept;

  // Refuses with `error` (see errors.h). The result is what to finish the call with.
  grpc::Status Refused(const absl::Status& error, const Subject& subject,
                       std::string_view request_id, Call* call) noexcept;
  // The same where the answer itself says it, as in a stream.
  google::rpc::Status RefusedMessage(const absl::Status& error, const Subject& subject,
                                     std::string_view request_id) noexcept;

  // The caller went away. After Answered, its answer counts as lost.
  void Lost() { lost_.store(true, std::memory_order_relaxed); }

 private:
  RequestIds IdsOf(std::string_view request_id) const;
  void Finished(grpc::StatusCode code, const Subject& subject, std::string_view request_id,
                const absl::Status& error) noexcept;
  void Tell(TimePoint now, grpc::StatusCode code, const Subject& subject,
            std::string_view request_id, const absl::Status& error);

  const ServiceContext& services_;
  const Method method_;
  const std::string_view name_;
  const TimePoint received_;
  const bool accepted_;
  CallTrace trace_;
  std::atomic<bool> lost_ = false;
  bool answered_ = false;
  int64_t answer_bytes_ = 0;  // that the transport holds until this call ends
};

}  // namespace castor::server

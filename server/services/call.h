// What every method of every service shares: the parts it works with, and one call's entry in the
// books. All of it may be used from any thread.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string_view>

#include "engine/engine.h"
#include "server/auth/authorizer.h"
#include "server/lifecycle.h"
#include "server/metrics.h"
#include "server/shared_memory.h"
#include "server/transport/call_table.h"

namespace castor::server {

// Borrowed from the Server, which outlives every call.
struct ServiceContext {
  Engine& engine;
  Lifecycle& lifecycle;
  Metrics& metrics;
  SharedMemory& shared_memory;
  CallTable& calls;
  const Authorizer& authorizer;
  std::chrono::milliseconds max_deadline;  // caps every call's
  std::function<void()> on_engine_fault;   // must not block; may be called more than once
};

// When a call must have been answered: when its caller asks for it, and at most `max_deadline` (not
// negative) from now. gRPC tells the deadline on a clock of its own, on which it is `asked_now` at
// the moment `now`. Deadlines long past are past by `max_deadline`.
TimePoint DeadlineOf(gpr_timespec asked, std::chrono::milliseconds max_deadline,
                     gpr_timespec asked_now, TimePoint now);

// One call, from its handler's first line to its last byte: counted in and out of the lifecycle,
// and in the metrics and the log once its answer is known.
class CallRecord {
 public:
  CallRecord(const ServiceContext& services, Method method);
  ~CallRecord();
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;

  // False while the server drains: answer with Draining().
  bool accepted() const { return accepted_; }
  static absl::Status Draining();
  static absl::Status CallerGone();

  TimePoint received() const { return received_; }
  double elapsed_us() const;
  TimePoint DeadlineOf(const grpc::CallbackServerContext& context) const;

  // The message that came.
  void Received(const grpc::ByteBuffer& message);

  // Counts the answer. Call this or Refused exactly once, just before gRPC gets the answer, so that
  // a caller that has it finds it counted. `kernel` is unset if none was chosen.
  void Answered(const grpc::ByteBuffer& message, std::optional<KernelName> kernel,
                std::string_view request_id);

  // Refuses with `error` (see errors.h). The result is what to finish the call with.
  grpc::Status Refused(const absl::Status& error, std::optional<KernelName> kernel,
                       std::string_view request_id, grpc::CallbackServerContext* context);

  // The caller went away. After Answered, its answer counts as lost.
  void Lost() { lost_.store(true, std::memory_order_relaxed); }

 private:
  void Finished(grpc::StatusCode code, std::optional<KernelName> kernel,
                std::string_view request_id);

  const ServiceContext& services_;
  const Method method_;
  const TimePoint received_;
  const bool accepted_;
  std::atomic<bool> lost_ = false;
  bool answered_ = false;
};

}  // namespace castor::server

#include "server/services/call.h"

#include <algorithm>

#include "engine/base/error.h"
#include "server/errors.h"
#include "server/logging.h"

namespace castor::server {

TimePoint DeadlineOf(gpr_timespec asked, std::chrono::milliseconds max_deadline,
                     gpr_timespec asked_now, TimePoint now) {
  // Saturates: a call without a deadline has the end of the clock's range, and some callers send
  // values close to it.
  const gpr_timespec left = gpr_time_sub(asked, asked_now);
  const auto limit = std::chrono::duration_cast<std::chrono::seconds>(max_deadline).count() + 1;
  if (left.tv_sec > limit) return now + max_deadline;
  if (left.tv_sec < -limit) return now - max_deadline;
  const auto asked_for = std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
  return now + std::clamp<std::chrono::nanoseconds>(asked_for, -max_deadline, max_deadline);
}

CallRecord::CallRecord(const ServiceContext& services, Method method)
    : services_(services),
      method_(method),
      received_(std::chrono::steady_clock::now()),
      accepted_(services.lifecycle.EnterCall()) {
  services_.metrics.Started(method_);
}

CallRecord::~CallRecord() {
  if (answered_ && lost_.load(std::memory_order_relaxed)) services_.metrics.AnswerLost(method_);
  services_.metrics.LeavingBytes(-answer_bytes_);
  services_.metrics.Ended(method_);
  services_.lifecycle.LeaveCall();
}

absl::Status CallRecord::Draining() {
  return MakeError(Reason::kDraining, "the server is stopping; try another");
}

absl::Status CallRecord::CallerGone() {
  return MakeError(Reason::kCancelled, "the caller went away");
}

TimePoint CallRecord::DeadlineOf(const grpc::CallbackServerContext& context) const {
  const gpr_timespec asked = context.raw_deadline();
  return server::DeadlineOf(asked, services_.max_deadline, gpr_now(asked.clock_type),
                            std::chrono::steady_clock::now());
}

double CallRecord::elapsed_us() const {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - received_)
      .count();
}

void CallRecord::Received(const grpc::ByteBuffer& message) {
  services_.metrics.ReceivedBytes(method_, message.Length());
}

void CallRecord::Answered(const grpc::ByteBuffer& message, std::optional<KernelName> kernel,
                          std::string_view request_id) {
  services_.metrics.SentBytes(method_, message.Length());
  answered_ = true;
  answer_bytes_ = static_cast<int64_t>(message.Length());
  services_.metrics.LeavingBytes(answer_bytes_);
  Finished(grpc::StatusCode::OK, kernel, request_id);
}

grpc::Status CallRecord::Refused(const absl::Status& error, std::optional<KernelName> kernel,
                                 std::string_view request_id,
                                 grpc::CallbackServerContext* context) {
  const grpc::Status status = RefuseCall(error, request_id, context);
  if (status.error_code() == grpc::StatusCode::INTERNAL && !services_.engine.healthy()) {
    services_.on_engine_fault();
  }
  Finished(status.error_code(), kernel, request_id);
  return status;
}

void CallRecord::Finished(grpc::StatusCode code, std::optional<KernelName> kernel,
                          std::string_view request_id) {
  const double seconds = elapsed_us() / 1e6;
  services_.metrics.Finished(method_, kernel, code, seconds);
  LogDebug("call", {{"method", NameOf(method_)},
                    {"kernel", kernel.has_value() ? castor::NameOf(*kernel) : "none"},
                    {"code", NameOf(code)},
                    {"request_id", Printable(request_id, kMaxRequestIdBytes)},
                    {"seconds", seconds}});
}

}  // namespace castor::server

#include "server/services/call.h"

#include <algorithm>

#include "engine/base/error.h"
#include "server/errors.h"
#include "server/logging.h"

namespace castor::server {

TimePoint DeadlineOf(std::chrono::system_clock::time_point asked,
                     std::chrono::milliseconds max_deadline,
                     std::chrono::system_clock::time_point system_now, TimePoint now) {
  // Clamped first: the difference to either end of the clock's range overflows.
  return now +
         (std::clamp(asked, system_now - max_deadline, system_now + max_deadline) - system_now);
}

std::optional<KernelName> RequestedKernel(const Kernel& kernel) {
  if (std::holds_alternative<Automatic>(kernel)) return std::nullopt;
  return castor::NameOf(kernel);
}

CallRecord::CallRecord(const ServiceContext& services, Method method)
    : services_(services),
      method_(method),
      received_(std::chrono::steady_clock::now()),
      accepted_(services.lifecycle.EnterCall()) {
  services_.metrics.Started(method_);
}

CallRecord::~CallRecord() {
  handoff_.TakeOver();
  services_.lifecycle.LeaveCall();
}

absl::Status CallRecord::Draining() {
  return MakeError(Reason::kDraining, "the server is stopping; try another");
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
  HandOver();
}

}  // namespace castor::server

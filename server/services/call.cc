#include "server/services/call.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "server/logging.h"

namespace castor::server {
namespace {

// Made once: to copy them needs no memory.
const absl::Status& draining =
    *new absl::Status(MakeError(Reason::kDraining, "the server is stopping; try another"));
const absl::Status& caller_gone =
    *new absl::Status(MakeError(Reason::kCancelled, "the caller went away"));

}  // namespace

std::string CallTrace::trace_id() const {
  if (sampled != nullptr) return ToHex(sampled->own.trace);
  return caller.has_value() ? ToHex(caller->trace) : "";
}

std::string CallTrace::span_id() const {
  return sampled != nullptr ? ToHex(sampled->own.span) : "";
}

CallTrace BeginTrace(const Tracer& tracer, const Call& call, std::string_view name, bool known) {
  CallTrace trace;
  if (known) trace.caller = ParseTraceparent(call.header("traceparent"));
  trace.sampled = tracer.Begin(trace.caller, name);
  if (trace.sampled != nullptr && trace.caller.has_value()) {
    trace.sampled->state = UsableTraceState(call.header("tracestate"));
  }
  return trace;
}

CallRecord::CallRecord(const ServiceContext& services, Method method, std::string_view name,
                       CallTrace trace)
    : services_(services),
      method_(method),
      name_(name),
      received_(std::chrono::steady_clock::now()),
      accepted_(services.lifecycle.EnterCall()),
      trace_(std::move(trace)) {
  if (trace_.sampled != nullptr) trace_.sampled->received = received_;
  services_.metrics.Started(method_);
}

CallRecord::~CallRecord() {
  if (answered_ && lost_.load(std::memory_order_relaxed)) services_.metrics.AnswerLost(method_);
  services_.metrics.OutgoingBytes(-answer_bytes_);
  services_.metrics.Ended(method_);
  services_.lifecycle.LeaveCall();
}

absl::Status CallRecord::Draining() { return draining; }

absl::Status CallRecord::CallerGone() { return caller_gone; }

double CallRecord::elapsed_us() const {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - received_)
      .count();
}

void CallRecord::Answered(size_t bytes, const Subject& subject,
                          std::string_view request_id) noexcept {
  services_.metrics.SentBytes(method_, bytes);
  answered_ = true;
  answer_bytes_ = static_cast<int64_t>(bytes);
  services_.metrics.OutgoingBytes(answer_bytes_);
  Finished(grpc::StatusCode::OK, subject, request_id, absl::OkStatus());
}

grpc::Status CallRecord::Refused(const absl::Status& error, const Subject& subject,
                                 std::string_view request_id, Call* call) noexcept {
  grpc::Status status = OrOutOfMemory([&] { return RefuseCall(error, IdsOf(request_id), call); });
  Finished(status.error_code(), subject, request_id, error);
  return status;
}

google::rpc::Status CallRecord::RefusedMessage(const absl::Status& error, const Subject& subject,
                                               std::string_view request_id) noexcept {
  google::rpc::Status details = OrOutOfMemory([&] { return ToDetails(error, IdsOf(request_id)); });
  Finished(static_cast<grpc::StatusCode>(details.code()), subject, request_id, error);
  return details;
}

RequestIds CallRecord::IdsOf(std::string_view request_id) const {
  return {.request_id = request_id, .trace_id = trace_.trace_id(), .span_id = trace_.span_id()};
}

void CallRecord::Finished(grpc::StatusCode code, const Subject& subject,
                          std::string_view request_id, const absl::Status& error) noexcept {
  if (code == grpc::StatusCode::INTERNAL && !services_.engine.healthy()) {
    services_.on_engine_fault();
  }
  const TimePoint now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - received_).count();
  services_.metrics.Finished(method_, subject, code, seconds);
  // It is counted, and will be answered.
  Guarded([&] { Tell(now, code, subject, request_id, error); }).IgnoreError();
}

void CallRecord::Tell(TimePoint now, grpc::StatusCode code, const Subject& subject,
                      std::string_view request_id, const absl::Status& error) {
  const std::string_view ran = subject.kernel.has_value() ? castor::NameOf(*subject.kernel) : "";
  const std::string_view model =
      subject.model.has_value() ? services_.metrics.NameOf(*subject.model) : "";
  const double seconds = std::chrono::duration<double>(now - received_).count();
  RequestTrace* const trace = trace_.sampled.get();
  if (Logs(LogLevel::kDebug)) {
    LogDebug("call", {{"method", name_},
                      {"kernel", ran.empty() ? "none" : ran},
                      {"model", LogValue::IfAny(std::string(model))},
                      {"code", NameOf(code)},
                      {"request_id", Printable(request_id, kMaxRequestIdBytes)},
                      {"trace_id", LogValue::IfAny(trace_.trace_id())},
                      {"span_id", LogValue::IfAny(trace_.span_id())},
                      {"seconds", seconds}});
  }
  if (trace == nullptr) return;
  trace->ended = now;
  trace->kernel = ran;
  trace->model = model;
  trace->code = NameOf(code);
  trace->is_error = IsServerError(code);
  trace->request_id = Printable(request_id, kMaxRequestIdBytes);
  if (!error.ok()) {
    trace->reason = castor::NameOf(ReasonOf(error));
    trace->message = Printable({error.message().data(), error.message().size()}, kMaxMessageBytes);
  }
  services_.tracer->End(std::move(trace_.sampled));
}

}  // namespace castor::server

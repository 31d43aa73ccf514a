#include "server/tracing/tracer.h"

#include <grpcpp/client_context.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <random>
#include <utility>

#include "absl/random/random.h"
#include "server/logging.h"
#include "server/options/small_file.h"
#include "server/version.h"

namespace castor::server {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

absl::Status Tracer::Start(const TraceOptions& options) {
  if (!options.ca.empty()) {
    absl::StatusOr<std::string> authorities = ReadSmallFile(options.ca);
    if (!authorities.ok()) {
      return absl::FailedPreconditionError("OTEL_EXPORTER_OTLP_CERTIFICATE: " +
                                           std::string(authorities.status().message()));
    }
    authorities_ = *std::move(authorities);
  }
  options_ = options;
  sampler_.emplace(options.sample);
  thread_ = std::thread([this, about = AttributesOfProcess()] { Run(about); });
  on_.store(true, std::memory_order_release);
  LogInfo("tracing", {{"endpoint", options.endpoint},
                      {"security", options.tls ? "TLS" : "plaintext"},
                      {"sample", options.sample}});
  return absl::OkStatus();
}

void Tracer::Stop(TimePoint deadline) {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    end_ = deadline;
    changed_.NotifyOne();
  }
  thread_.join();
}

std::unique_ptr<RequestTrace> Tracer::Begin(const std::optional<TraceContext>& parent,
                                            std::string_view name) const {
  if (!on()) return nullptr;
  const TraceId trace = parent.has_value() ? parent->trace : NewTraceId();
  if (!sampler_->Takes(parent, trace)) return nullptr;
  auto begun = std::make_unique<RequestTrace>();
  begun->own = {.trace = trace, .span = NewSpanId(), .sampled = true};
  if (parent.has_value()) begun->parent = parent->span;
  begun->name = name;
  return begun;
}

void Tracer::End(std::unique_ptr<RequestTrace> trace) {
  {
    MutexLock lock(mu_);
    if (end_ == TimePoint::max() && waiting_.size() < options_.max_queued_requests) {
      waiting_.push_back(std::move(trace));
      // To wake the thread costs a system call.
      if (waiting_.size() == options_.max_batch_requests) changed_.NotifyOne();
      return;
    }
  }
  metrics_.Dropped(DroppedSpans::kQueueFull, SpanCount(*trace));
}

bool Tracer::Take(Requests* taken) {
  taken->clear();
  const TimePoint until = steady_clock::now() + options_.gather;
  MutexLock lock(mu_);
  while (waiting_.size() < options_.max_batch_requests && end_ == TimePoint::max() &&
         changed_.WaitUntil(mu_, until)) {
  }
  const auto end = waiting_.begin() + std::min(waiting_.size(), options_.max_batch_requests);
  std::move(waiting_.begin(), end, std::back_inserter(*taken));
  waiting_.erase(waiting_.begin(), end);
  return end_ == TimePoint::max() || !taken->empty();
}

void Tracer::Run(const Attributes& about) {
  pthread_setname_np(pthread_self(), "tracer");
  otlp::ExportTraceServiceRequest message;  // kept: its spans are filled again
  auto& traces = *message.add_resource_spans();
  for (const auto& [key, value] : about) {
    auto& attribute = *traces.mutable_resource()->add_attributes();
    attribute.set_key(key);
    attribute.mutable_value()->set_string_value(value);
  }
  ScopeSpans& spans = *traces.add_scope_spans();
  spans.mutable_scope()->set_name("castor");
  spans.mutable_scope()->set_version(std::string(Version()));
  BatchSpans batches(std::random_device{}() | uint64_t{std::random_device{}()} << 32);
  Requests requests;
  for (bool open = true; open;) {
    open = Take(&requests);
    const TimePoint now = steady_clock::now();
    const WallClock clock = WallClock::Now();
    for (const auto& request : requests) {
      AddRequest(*request, batches.ContextOf(*request), clock, &spans);
      if (request->ran) batches.Add(*request, clock, now + options_.batch_settle);
    }
    batches.Take(open ? now : TimePoint::max(), &spans);
    if (spans.spans_size() > 0) Export(message, spans.spans_size());
    spans.clear_spans();
  }
}

void Tracer::Export(const otlp::ExportTraceServiceRequest& request, int64_t spans) {
  const TimePoint give_up = steady_clock::now() + options_.give_up_after;
  const auto end = [this] {
    MutexLock lock(mu_);
    return end_;
  };
  nanoseconds backoff = options_.first_backoff;
  for (;;) {
    const TimePoint until = std::min(give_up, end());
    const TimePoint now = steady_clock::now();
    if (now >= until) break;
    const ExportResult result = Call(request, std::min(until, now + options_.export_timeout));
    if (result.kind == ExportResult::Kind::kTaken) {
      const int64_t rejected = std::min(result.rejected, spans);
      metrics_.Exported(spans - rejected);
      metrics_.Dropped(DroppedSpans::kRejected, rejected);
      metrics_.Export(rejected == 0 ? TraceExport::kTaken : TraceExport::kPartlyTaken);
      if (std::exchange(failing_, false)) {
        LogInfo("traces are exported again", {{"endpoint", options_.endpoint}});
      }
      return;
    }
    if (!std::exchange(failing_, true)) {
      LogWarning("cannot export traces; spans that do not fit into the queue are dropped",
                 {{"endpoint", options_.endpoint}, {"error", result.message}});
    }
    if (result.kind == ExportResult::Kind::kRefused) {
      metrics_.Export(TraceExport::kRefused);
      return metrics_.Dropped(DroppedSpans::kRefused, spans);
    }
    metrics_.Export(TraceExport::kFailed);
    // Servers that lost a collector together do not return together.
    const auto pause =
        std::chrono::duration_cast<nanoseconds>(backoff * absl::Uniform(absl::BitGen(), 0.8, 1.2));
    if (!Pause(pause + result.delay.value_or(std::chrono::milliseconds(0)), until)) break;
    backoff = std::min<nanoseconds>(2 * backoff, options_.max_backoff);
  }
  const bool ending = end() != TimePoint::max();
  metrics_.Dropped(ending ? DroppedSpans::kShutdown : DroppedSpans::kFailed, spans);
}

ExportResult Tracer::Call(const otlp::ExportTraceServiceRequest& request, TimePoint until) {
  if (collector_ == nullptr) collector_ = ConnectToCollector(options_, authorities_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + (until - steady_clock::now()));
  otlp::ExportTraceServiceResponse answer;
  std::optional<grpc::Status> status;
  collector_->async()->Export(&context, &request, &answer, [&](grpc::Status done) {
    MutexLock lock(mu_);
    status = std::move(done);
    changed_.NotifyOne();
  });
  {
    MutexLock lock(mu_);
    while (!status.has_value() &&
           changed_.WaitUntil(mu_, std::min(until + options_.export_timeout, end_))) {
    }
    if (!status.has_value()) context.TryCancel();  // at the end; gRPC itself heeds `until`
    while (!status.has_value()) changed_.Wait(mu_);
  }
  // The connection may lead nowhere, which nobody would say.
  if (status->error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) collector_.reset();
  return ReadExportResult(*status, answer);
}

bool Tracer::Pause(nanoseconds time, TimePoint until) {
  const TimePoint over = steady_clock::now() + time;
  if (over >= until) return false;
  MutexLock lock(mu_);
  while (over < end_ && changed_.WaitUntil(mu_, over)) {
  }
  return over < end_;
}

}  // namespace castor::server

#include "server/tracing/tracer.h"

#include <pthread.h>

#include <chrono>
#include <random>
#include <utility>

#include "server/logging.h"
#include "server/version.h"

namespace castor::server {

absl::Status Tracer::Start(const TraceOptions& options) {
  auto exporter = OtlpExporter::Open(options, metrics_);
  if (!exporter.ok()) return exporter.status();
  exporter_ = *std::move(exporter);
  options_ = options;
  sampler_.emplace(options.sample);
  resource_ = ResourceOfProcess();
  queue_ = std::make_unique<SpanQueue>(options.max_queued_spans, options.max_queued_bytes,
                                       options.max_batch_spans);
  thread_ = std::thread([this] { Run(); });
  on_.store(true, std::memory_order_release);
  LogInfo("tracing", {{"endpoint", options.endpoint},
                      {"security", options.tls ? "TLS" : "plaintext"},
                      {"sample", options.sample}});
  return absl::OkStatus();
}

void Tracer::Stop(TimePoint deadline) {
  if (!thread_.joinable()) return;
  exporter_->FinishBy(deadline);
  queue_->Close();
  {
    MutexLock lock(mu_);
    while (!ended_ && changed_.WaitUntil(mu_, deadline)) {
    }
  }
  exporter_->Cancel();
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
  const int spans = SpanCount(*trace);
  if (!queue_->Add(std::move(trace))) metrics_.Dropped(DroppedSpans::kQueueFull, spans);
}

void Tracer::Run() {
  pthread_setname_np(pthread_self(), "tracer");
  otlp::ExportTraceServiceRequest message;  // kept: its spans are filled again
  auto& traces = *message.add_resource_spans();
  *traces.mutable_resource() = resource_;
  ScopeSpans& spans = *traces.add_scope_spans();
  spans.mutable_scope()->set_name("castor");
  spans.mutable_scope()->set_version(std::string(Version()));
  BatchSpans batches(std::random_device{}() | uint64_t{std::random_device{}()} << 32);
  RequestTraces requests;
  for (bool open = true; open;) {
    const TimePoint wake = batches.empty() ? TimePoint::max() : batches.next_due();
    open = queue_->Take(options_.gather, wake, &requests);
    const TimePoint now = std::chrono::steady_clock::now();
    const WallClock clock = WallClock::Now();
    for (const auto& request : requests) {
      AddRequest(*request, batches.ContextOf(*request), clock, &spans);
      if (request->ran) batches.Add(*request, clock, now + options_.batch_settle);
    }
    batches.Take(open ? now : TimePoint::max(), &spans);
    if (spans.spans_size() > 0) exporter_->Export(message, spans.spans_size());
    spans.clear_spans();
  }
  MutexLock lock(mu_);
  ended_ = true;
  changed_.NotifyOne();
}

}  // namespace castor::server

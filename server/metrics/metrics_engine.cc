#include <prometheus/metric_family.h>

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/kernel_table.h"
#include "server/metrics/collectors.h"

namespace castor::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr size_t kSecondsStep = 2;  // every second bound: steps of about 2.5
constexpr size_t kTokensStep = 2;   // of 4
constexpr size_t kWaitStep = 4;     // of 6

MetricFamily Family(const char* name, const char* help, MetricType type) {
  return {name, help, type, {}};
}

// Adds one series to a family of counters or gauges.
void Add(MetricFamily& family, double value, Labels labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  family.metric.push_back(std::move(metric));
}

// Adds one histogram to a family of them, with every `step`-th of its bounds: the engine's are
// finer than a time series each is worth. Prometheus wants cumulative counts, so no observation is
// lost.
void Add(MetricFamily& family, const HistogramSnapshot& snapshot, Labels labels = {},
         size_t step = 1) {
  ClientMetric metric;
  metric.label = std::move(labels);
  uint64_t cumulative = 0;
  for (size_t i = 0; i < snapshot.bounds.size(); ++i) {
    cumulative += snapshot.counts[i];
    if (i % step == 0) metric.histogram.bucket.push_back({cumulative, snapshot.bounds[i]});
  }
  if (!snapshot.counts.empty()) cumulative += snapshot.counts.back();
  metric.histogram.bucket.push_back({cumulative, std::numeric_limits<double>::infinity()});
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = snapshot.sum;
  family.metric.push_back(std::move(metric));
}

void CollectWork(const EngineStats& stats, std::vector<MetricFamily>& out) {
  auto answered = Family("castor_engine_requests_total", "Requests that the engine answered OK.",
                         MetricType::Counter);
  auto batches = Family("castor_batches_total", "Batches executed.", MetricType::Counter);
  auto tokens = Family("castor_tokens_total", "Tokens computed.", MetricType::Counter);
  auto padded = Family("castor_padded_tokens_total", "Tokens computed that no request asked for.",
                       MetricType::Counter);
  auto queue = Family("castor_queue_duration_seconds",
                      "Time a request waits for its batch to start.", MetricType::Histogram);
  auto stage = Family("castor_stage_duration_seconds",
                      "Time of each stage: tokenize per request; copy_in, compute and copy_out per "
                      "batch.",
                      MetricType::Histogram);
  auto batch_requests =
      Family("castor_batch_requests", "Requests in a batch.", MetricType::Histogram);
  auto batch_tokens = Family("castor_batch_tokens", "Tokens in a batch.", MetricType::Histogram);
  auto ratio = Family("castor_prediction_ratio",
                      "Measured time of a batch on the device divided by the predicted time.",
                      MetricType::Histogram);
  auto automatic = Family("castor_automatic_requests_total",
                          "Requests for the automatic kernel, by the kernel that answered them.",
                          MetricType::Counter);
  auto rejected = Family("castor_automatic_rejected_total",
                         "Runs of a kernel for the automatic kernel whose estimated error exceeded "
                         "the request's limit.",
                         MetricType::Counter);
  auto error = Family("castor_attention_relative_error",
                      "Estimated relative L2 error of an approximate kernel, per request that was "
                      "probed.",
                      MetricType::Histogram);

  for (const WorkStats& work : stats.work) {
    const Labels labels = {{"kernel", work.kernel}, {"operation", work.operation}};
    auto with_phase = [&](const char* phase) {
      Labels all = labels;
      all.push_back({"phase", phase});
      return all;
    };
    Add(answered, static_cast<double>(work.requests), labels);
    Add(batches, static_cast<double>(work.batches), labels);
    Add(tokens, static_cast<double>(work.tokens), labels);
    Add(padded, static_cast<double>(work.padded_tokens), labels);
    Add(queue, work.queue_seconds, labels, kSecondsStep);
    Add(stage, work.copy_in_seconds, with_phase("copy_in"), kSecondsStep);
    Add(stage, work.compute_seconds, with_phase("compute"), kSecondsStep);
    Add(stage, work.copy_out_seconds, with_phase("copy_out"), kSecondsStep);
    Add(batch_requests, work.batch_requests, labels);
    Add(batch_tokens, work.batch_tokens, labels, kTokensStep);
    Add(ratio, work.prediction_ratio, labels);
    const KernelRow* const row = FindKernel(work.kernel);
    if (row == nullptr || row->kind == KernelKind::kOther || work.operation == "encode") continue;
    const Labels kernel = {{"kernel", work.kernel}};
    Add(automatic, static_cast<double>(work.automatic_requests), kernel);
    if (work.relative_error.bounds.empty()) continue;
    Add(rejected, static_cast<double>(work.automatic_rejected), kernel);
    Add(error, work.relative_error, kernel);
  }
  Add(stage, stats.tokenize_seconds,
      {{"kernel", "none"}, {"operation", "encode"}, {"phase", "tokenize"}}, kSecondsStep);
  auto probe = Family("castor_fidelity_probe_duration_seconds",
                      "Time to measure the errors of a batch's requests, exact rows included.",
                      MetricType::Histogram);
  Add(probe, stats.fidelity_seconds, {}, kSecondsStep);
  for (MetricFamily* family :
       {&answered, &batches, &tokens, &padded, &queue, &stage, &batch_requests, &batch_tokens,
        &ratio, &automatic, &rejected, &error, &probe}) {
    // A kernel that is not there leaves a family without series.
    if (!family->metric.empty()) out.push_back(std::move(*family));
  }
}

void CollectLoad(const EngineStats& stats, std::vector<MetricFamily>& out) {
  auto gauge = [&](const char* name, const char* help, int64_t value) {
    Add(out.emplace_back(Family(name, help, MetricType::Gauge)), static_cast<double>(value));
  };
  const LoadStats& load = stats.load;
  gauge("castor_queue_depth", "Requests waiting for a batch.", load.queued_requests);
  gauge("castor_inflight_requests", "Requests admitted and not answered.", load.inflight_requests);
  gauge("castor_inflight_tokens", "Their tokens.", load.inflight_tokens);
  gauge("castor_inflight_bytes", "Their inputs and outputs in staging memory.",
        load.inflight_bytes);
  auto limit =
      Family("castor_queue_limit", "Budgets of requests in flight, by unit.", MetricType::Gauge);
  Add(limit, static_cast<double>(load.max_requests), {{"unit", "requests"}});
  Add(limit, static_cast<double>(load.max_tokens), {{"unit", "tokens"}});
  Add(limit, static_cast<double>(load.max_bytes), {{"unit", "bytes"}});
  out.push_back(std::move(limit));

  auto measure = [&](const char* name, const char* help, double value, MetricType type) {
    Add(out.emplace_back(Family(name, help, type)), value);
  };
  measure("castor_queued_seconds", "Predicted device time of waiting requests.",
          load.queued_seconds, MetricType::Gauge);
  measure("castor_queued_seconds_limit", "Longest predicted wait at which requests are admitted.",
          load.max_queued_seconds, MetricType::Gauge);
  measure("castor_oldest_request_seconds", "Age of the oldest unanswered request.",
          load.oldest_seconds, MetricType::Gauge);
  measure("castor_saturation_ratio", "Share of the scarcest budget in use, 0 to 1.",
          load.saturation, MetricType::Gauge);
  measure("castor_deadline_misses_total", "Admitted requests not answered by their deadline.",
          static_cast<double>(stats.deadline_misses), MetricType::Counter);
  measure("castor_preemptions_total", "Batches that preempted a running one.",
          static_cast<double>(stats.preemptions), MetricType::Counter);
  measure("castor_wasted_compute_seconds_total",
          "Device time spent on requests that were not answered, or answered too late.",
          stats.wasted_seconds, MetricType::Counter);

  auto wait =
      Family("castor_wait_duration_seconds",
             "Time a request waits for its batch to start, by priority.", MetricType::Histogram);
  constexpr const char* kPriorities[] = {"low", "normal", "high"};
  for (size_t level = 0; level < stats.wait_seconds.size(); ++level) {
    Add(wait, stats.wait_seconds[level], {{"priority", kPriorities[level]}}, kWaitStep);
  }
  out.push_back(std::move(wait));

  auto tenants = Family("castor_tenant_compute_seconds_total",
                        "Device time by tenant; where there are many, most share the name other.",
                        MetricType::Counter);
  for (const auto& [tenant, seconds] : stats.tenant_seconds) {
    Add(tenants, seconds, {{"tenant", tenant}});
  }
  if (!tenants.metric.empty()) out.push_back(std::move(tenants));

  auto rejected = Family("castor_rejected_total", "Requests that the engine refused, by reason.",
                         MetricType::Counter);
  for (const RefusalStats& refusal : stats.refusals) {
    Add(rejected, static_cast<double>(refusal.count),
        {{"reason", std::string(NameOf(refusal.reason))}});
  }
  out.push_back(std::move(rejected));

  auto cancelled = Family("castor_cancelled_total", "Requests cancelled or expired, by stage.",
                          MetricType::Counter);
  Add(cancelled, static_cast<double>(stats.cancelled_queued), {{"stage", "queued"}});
  Add(cancelled, static_cast<double>(stats.cancelled_running), {{"stage", "running"}});
  out.push_back(std::move(cancelled));
}

void CollectDevice(const EngineStats& stats, std::vector<MetricFamily>& out) {
  const LoadStats& load = stats.load;
  const MemoryStats& memory = stats.memory;
  auto gauge = [&](const char* name, const char* help, int64_t value) {
    Add(out.emplace_back(Family(name, help, MetricType::Gauge)), static_cast<double>(value));
  };
  gauge("castor_device_memory_allocated_bytes", "Device memory in tensors.",
        memory.device_allocated_bytes);
  gauge("castor_device_memory_reserved_bytes",
        "Device memory that the caching allocator holds, tensors included.",
        memory.device_reserved_bytes);
  gauge("castor_device_memory_peak_bytes", "Peak device memory in tensors.",
        memory.device_peak_bytes);
  gauge("castor_device_memory_predicted_bytes",
        "Device memory of the models' weights, plus the prediction for running batches.",
        load.device_bytes);
  gauge("castor_device_memory_limit_bytes", "Limit of castor_device_memory_predicted_bytes.",
        load.max_device_bytes);
  auto host = Family("castor_staging_memory_bytes",
                     "Staging memory on the host: in use by requests, or cached for the next.",
                     MetricType::Gauge);
  Add(host, static_cast<double>(memory.host_in_use_bytes), {{"state", "in_use"}});
  Add(host, static_cast<double>(memory.host_cached_bytes), {{"state", "cached"}});
  out.push_back(std::move(host));
  gauge("castor_staging_memory_peak_bytes", "Peak staging memory in use.", memory.host_peak_bytes);

  Add(out.emplace_back(
          Family("castor_engine_faults_total", "Errors of the device.", MetricType::Counter)),
      static_cast<double>(stats.device_faults));
  Add(out.emplace_back(Family("castor_device_healthy",
                              "0 after a device fault that is not recoverable, else 1.",
                              MetricType::Gauge)),
      stats.device_healthy ? 1 : 0);
}

class EngineCollector : public prometheus::Collectable {
 public:
  explicit EngineCollector(const Engine& engine) : engine_(engine) {}

  std::vector<MetricFamily> Collect() const override {
    const EngineStats stats = engine_.stats();
    std::vector<MetricFamily> families;
    CollectWork(stats, families);
    CollectLoad(stats, families);
    CollectDevice(stats, families);
    return families;
  }

 private:
  const Engine& engine_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeEngineCollector(const Engine& engine) {
  return std::make_shared<EngineCollector>(engine);
}

}  // namespace castor::server

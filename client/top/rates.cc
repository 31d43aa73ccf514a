#include "client/top/rates.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/numbers.h"

namespace castor::top {
namespace {

using client::ForEachSeries;
using client::LabelOf;
using client::MetricsPage;

constexpr std::string_view kRequests = "castor_requests_total";

Gauge GaugeOf(const MetricsPage& page, std::string_view name, std::string_view part = "") {
  const Gauge value = client::SumOf(page, name, part);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// The growth of a family's series, one by one.
class Growths {
 public:
  Growths(const MetricsPage* before, const MetricsPage& after, double seconds)
      : before_(before), after_(after), seconds_(seconds) {}

  // Calls `visit` with the labels of each series.
  template <typename Visit>  // (std::string_view labels, const Growth& growth)
  void ForEach(std::string_view name, const Visit& visit) const {
    ForEachSeries(after_, name, [&](std::string_view labels, double value) {
      if (!std::isfinite(value)) return;
      Growth growth{.total = value};
      if (before_ != nullptr && seconds_ > 0) {
        std::string series(name);
        if (!labels.empty()) series.append("{").append(labels).append("}");
        const auto earlier = before_->find(series);
        // One that was not there has been at zero.
        const double from = earlier == before_->end() ? 0 : earlier->second;
        if (value > from) growth.per_second = (value - from) / seconds_;
      }
      visit(labels, growth);
    });
  }

  // The sum of the family.
  Growth Of(std::string_view name) const {
    Growth sum;
    ForEach(name, [&](std::string_view, const Growth& growth) {
      sum.per_second += growth.per_second;
      sum.total += growth.total;
    });
    return sum;
  }

 private:
  const MetricsPage* const before_;
  const MetricsPage& after_;
  const double seconds_;
};

using Key = std::pair<std::string, std::string>;

// Some families say `method`, others `operation`.
Key KeyOf(std::string_view labels) {
  std::string operation = LabelOf(labels, "operation");
  if (operation.empty()) operation = LabelOf(labels, "method");
  return {operation, LabelOf(labels, "kernel")};
}

// Buckets are cumulative: each one's own share is what it has beyond the one before.
void AddHistograms(const Growths& growths, const std::string& name, double seconds,
                   Histogram WorkRates::*histogram, Rates* rates) {
  std::map<Key, std::map<double, double>> cumulative;
  growths.ForEach(name + "_bucket", [&](std::string_view labels, const Growth& growth) {
    double bound = 0;
    if (!absl::SimpleAtod(LabelOf(labels, "le"), &bound)) return;
    cumulative[KeyOf(labels)][bound] += growth.per_second * seconds;
  });
  for (const auto& [key, buckets] : cumulative) {
    double below = 0;
    for (const auto& [bound, count] : buckets) {
      (rates->work[key].*histogram).Add(bound, std::max(0.0, count - below));
      below = std::max(below, count);
    }
  }
}

void ReadWork(const Growths& growths, double seconds, Rates* rates) {
  // The methods that compute are those whose time is measured.
  AddHistograms(growths, "castor_request_duration_seconds", seconds, &WorkRates::latency, rates);
  AddHistograms(growths, "castor_queue_duration_seconds", seconds, &WorkRates::wait, rates);
  const auto find = [&](std::string_view labels) {
    const auto found = rates->work.find(KeyOf(labels));
    return found == rates->work.end() ? nullptr : &found->second;
  };
  growths.ForEach(kRequests, [&](std::string_view labels, const Growth& growth) {
    const std::string code = LabelOf(labels, "code");
    if (WorkRates* const work = find(labels)) {
      (code == "OK" ? work->requests : work->errors) += growth.per_second;
      work->total += growth.total;
    }
    if (code == "OK" || growth.total == 0) return;
    Growth& error = rates->errors[code];
    error.per_second += growth.per_second;
    error.total += growth.total;
  });
  const auto add = [&](std::string_view name, double WorkRates::*rate, std::string_view part = "") {
    growths.ForEach(name, [&](std::string_view labels, const Growth& growth) {
      if (labels.find(part) == std::string_view::npos) return;
      if (WorkRates* const work = find(labels)) work->*rate += growth.per_second;
    });
  };
  add("castor_tokens_total", &WorkRates::tokens);
  add("castor_batch_requests_count", &WorkRates::batches);
  add("castor_batch_requests_sum", &WorkRates::in_batches);
  add("castor_stage_duration_seconds_sum", &WorkRates::compute, "phase=\"compute\"");
}

void ReadIdentity(const MetricsPage& page, double now, Rates* rates) {
  ForEachSeries(page, "castor_build_info", [&](std::string_view labels, double) {
    rates->version = LabelOf(labels, "version");
    rates->device = LabelOf(labels, "device");
  });
  ForEachSeries(page, "castor_device_info", [&](std::string_view labels, double) {
    rates->backend = LabelOf(labels, "backend");
  });
  const auto is = [&](std::string_view name, bool otherwise) {
    return GaugeOf(page, name).value_or(otherwise ? 1 : 0) > 0;
  };
  rates->ready = is("castor_ready", false);
  rates->draining = is("castor_draining", false);
  rates->stalled = is("castor_engine_stalled", false);
  rates->healthy = is("castor_device_healthy", true);
  if (const Gauge start = GaugeOf(page, "process_start_time_seconds")) {
    rates->uptime = std::max(0.0, now - *start);
  }
}

LoadGauges ReadLoad(const MetricsPage& page) {
  constexpr std::string_view kLimit = "castor_queue_limit";
  return {.saturation = GaugeOf(page, "castor_saturation_ratio"),
          .queue_depth = GaugeOf(page, "castor_queue_depth"),
          .queued_seconds = GaugeOf(page, "castor_queued_seconds"),
          .queued_seconds_limit = GaugeOf(page, "castor_queued_seconds_limit"),
          .oldest_seconds = GaugeOf(page, "castor_oldest_request_seconds"),
          .requests = GaugeOf(page, "castor_inflight_requests"),
          .tokens = GaugeOf(page, "castor_inflight_tokens"),
          .bytes = GaugeOf(page, "castor_inflight_bytes"),
          .requests_limit = GaugeOf(page, kLimit, "unit=\"requests\""),
          .tokens_limit = GaugeOf(page, kLimit, "unit=\"tokens\""),
          .bytes_limit = GaugeOf(page, kLimit, "unit=\"bytes\""),
          .connections = GaugeOf(page, "castor_connections")};
}

MemoryGauges ReadMemory(const MetricsPage& page) {
  constexpr std::string_view kStaging = "castor_staging_memory_bytes";
  MemoryGauges memory{.allocated = GaugeOf(page, "castor_device_memory_allocated_bytes"),
                      .reserved = GaugeOf(page, "castor_device_memory_reserved_bytes"),
                      .limit = GaugeOf(page, "castor_device_memory_limit_bytes"),
                      .staging_used = GaugeOf(page, kStaging, "state=\"in_use\""),
                      .staging_cached = GaugeOf(page, kStaging, "state=\"cached\""),
                      .resident = GaugeOf(page, "process_resident_memory_bytes"),
                      .heap = GaugeOf(page, "castor_heap_used_bytes"),
                      .others = {}};
  struct Family {
    std::string_view name, label, prefix;
  };
  for (const Family& family : {Family{"castor_model_weights_bytes", "model", "weights of "},
                               Family{"castor_run_memory_bytes", "kind", ""},
                               Family{"castor_message_bytes", "direction", "messages "}}) {
    ForEachSeries(page, family.name, [&](std::string_view labels, double value) {
      if (!std::isfinite(value)) return;
      memory.others[std::string(family.prefix) + LabelOf(labels, family.label)] += value;
    });
  }
  return memory;
}

void AddGauge(const Gauge& from, Gauge* to) {
  if (from) *to = to->value_or(0) + *from;
}

void TakeGreater(const Gauge& from, Gauge* to) {
  if (from) *to = std::max(to->value_or(*from), *from);
}

void AddGrowths(const std::map<std::string, Growth>& from, std::map<std::string, Growth>* to) {
  for (const auto& [name, growth] : from) {
    (*to)[name].per_second += growth.per_second;
    (*to)[name].total += growth.total;
  }
}

// All but the latency.
void AddWork(const WorkRates& from, WorkRates* to) {
  for (const auto member :
       {&WorkRates::requests, &WorkRates::errors, &WorkRates::total, &WorkRates::tokens,
        &WorkRates::batches, &WorkRates::in_batches, &WorkRates::compute}) {
    to->*member += from.*member;
  }
  to->wait.Add(from.wait);
}

}  // namespace

WorkRates Rates::Sum() const {
  WorkRates sum;
  for (const auto& [key, each] : work) {
    AddWork(each, &sum);
    if (key.second != "none") sum.latency.Add(each.latency);
  }
  return sum;
}

bool HasRestarted(const MetricsPage& before, const MetricsPage& after) {
  constexpr std::string_view kStart = "process_start_time_seconds";
  const Gauge first = GaugeOf(before, kStart), second = GaugeOf(after, kStart);
  // The clock that it is calculated from may be set meanwhile, by a little.
  if (first && second) return std::abs(*first - *second) > 0.5;
  bool fell = false;
  ForEachSeries(after, kRequests, [&](std::string_view labels, double value) {
    const auto earlier = before.find(std::string(kRequests) + "{" + std::string(labels) + "}");
    fell = fell || (earlier != before.end() && value < earlier->second);
  });
  return fell;
}

Rates RatesOf(const MetricsPage* before, const MetricsPage& after, double seconds, double now) {
  Rates rates;
  rates.seconds = before == nullptr ? 0 : seconds;
  ReadIdentity(after, now, &rates);
  rates.load = ReadLoad(after);
  rates.memory = ReadMemory(after);
  const Growths growths(before, after, rates.seconds);
  ReadWork(growths, rates.seconds, &rates);
  growths.ForEach("castor_rejected_total", [&](std::string_view labels, const Growth& growth) {
    if (growth.total > 0) rates.refusals[LabelOf(labels, "reason")] = growth;
  });
  rates.deadline_misses = growths.Of("castor_deadline_misses_total");
  rates.faults = growths.Of("castor_engine_faults_total");
  if (rates.seconds > 0 && GaugeOf(after, "process_cpu_seconds_total")) {
    rates.processor = growths.Of("process_cpu_seconds_total").per_second;
  }
  return rates;
}

void AddTo(const Rates& server, Rates* all) {
  all->seconds = std::max(all->seconds, server.seconds);
  all->servers += server.servers;
  all->ready = all->ready && server.ready;
  all->draining = all->draining || server.draining;
  all->stalled = all->stalled || server.stalled;
  all->healthy = all->healthy && server.healthy;
  AddGauge(server.processor, &all->processor);
  for (const auto member : {&LoadGauges::saturation, &LoadGauges::queued_seconds,
                            &LoadGauges::queued_seconds_limit, &LoadGauges::oldest_seconds}) {
    TakeGreater(server.load.*member, &(all->load.*member));
  }
  for (const auto member :
       {&LoadGauges::queue_depth, &LoadGauges::requests, &LoadGauges::tokens, &LoadGauges::bytes,
        &LoadGauges::requests_limit, &LoadGauges::tokens_limit, &LoadGauges::bytes_limit,
        &LoadGauges::connections}) {
    AddGauge(server.load.*member, &(all->load.*member));
  }
  for (const auto member : {&MemoryGauges::allocated, &MemoryGauges::reserved, &MemoryGauges::limit,
                            &MemoryGauges::staging_used, &MemoryGauges::staging_cached,
                            &MemoryGauges::resident, &MemoryGauges::heap}) {
    AddGauge(server.memory.*member, &(all->memory.*member));
  }
  for (const auto& [name, bytes] : server.memory.others) all->memory.others[name] += bytes;
  for (const auto& [key, work] : server.work) {
    AddWork(work, &all->work[key]);
    all->work[key].latency.Add(work.latency);
  }
  AddGrowths(server.errors, &all->errors);
  AddGrowths(server.refusals, &all->refusals);
  for (const auto member : {&Rates::deadline_misses, &Rates::faults}) {
    (all->*member).per_second += (server.*member).per_second;
    (all->*member).total += (server.*member).total;
  }
}

}  // namespace castor::top

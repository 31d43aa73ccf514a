#include "client/top/rates.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"

namespace castor::top {
namespace {

using client::ForEachSeries;
using client::LabelOf;
using client::MetricsPage;

constexpr std::string_view kRequests = "castor_requests_total";
constexpr std::string_view kGreatest[] = {"castor_saturation_ratio", "castor_queued_seconds",
                                          "castor_queued_seconds_limit",
                                          "castor_oldest_request_seconds"};

bool HasRestarted(const MetricsPage& before, const MetricsPage& after) {
  constexpr std::string_view kStart = "process_start_time_seconds";
  const auto first = ValueOf(before, kStart), second = ValueOf(after, kStart);
  // The start time is calculated from a clock, which may be adjusted a little.
  if (first && second) return std::abs(*first - *second) > 0.5;
  return ValueOf(after, kRequests).value_or(0) < ValueOf(before, kRequests).value_or(0);
}

// Calls visit(labels, Counter) for each of the family's series.
template <typename Visit>
void ForEachCounter(const Rates& rates, std::string_view name, const Visit& visit) {
  ForEachSeries(rates.now, name, [&](std::string_view labels, double value) {
    if (!std::isfinite(value)) return;
    std::string series(name);
    if (!labels.empty()) series.append("{").append(labels).append("}");
    const auto grown = rates.growth.find(series);
    visit(labels, Counter{grown == rates.growth.end() ? 0 : grown->second, value});
  });
}

// Some families say `method`, others `operation`, which is the same for calls and streams.
std::string OperationOf(std::string_view labels) {
  std::string operation = LabelOf(labels, "operation");
  if (operation.empty()) operation = LabelOf(labels, "method");
  return operation.substr(0, operation.find("_stream"));
}

std::string RowOf(std::string_view labels) {
  std::string of = LabelOf(labels, "model");
  if (of.empty()) of = LabelOf(labels, "kernel");
  return OperationOf(labels) + " " + (of == "none" || of == "other" ? "-" : of);
}

}  // namespace

Rates RatesOf(const MetricsPage* before, MetricsPage after, double seconds) {
  Rates rates{.now = std::move(after)};
  rates.compared = before != nullptr && !HasRestarted(*before, rates.now);
  if (!rates.compared) return rates;
  for (const auto& [series, value] : rates.now) {
    const auto earlier = before->find(series);
    // A series that was absent counts as zero.
    const double grown = value - (earlier == before->end() ? 0 : earlier->second);
    if (grown > 0 && std::isfinite(grown)) rates.growth[series] = grown / seconds;
  }
  return rates;
}

void AddTo(const Rates& server, Rates* all) {
  all->servers += server.servers;
  all->compared = all->compared || server.compared;
  for (const auto& [series, value] : server.growth) all->growth[series] += value;
  for (const auto& [series, value] : server.now) {
    double& sum = all->now[series];
    const bool greatest = std::count(std::begin(kGreatest), std::end(kGreatest), series) > 0;
    sum = greatest ? std::max(sum, value) : sum + value;
  }
}

std::optional<double> ValueOf(const MetricsPage& page, std::string_view name,
                              std::string_view part) {
  const auto value = client::SumOf(page, name, part);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::map<std::string, Counter> CountersOf(const Rates& rates, std::string_view name,
                                          std::string_view label) {
  std::map<std::string, Counter> counters;
  ForEachCounter(rates, name, [&](std::string_view labels, const Counter& counter) {
    if (counter.total == 0) return;
    Counter& sum = counters[LabelOf(labels, label)];
    sum.per_second += counter.per_second;
    sum.total += counter.total;
  });
  return counters;
}

std::map<std::string, Work> WorkOf(const Rates& rates) {
  std::map<std::string, Work> rows;
  std::set<std::string> computing;
  // Only methods that compute have a duration.
  ForEachCounter(rates, "castor_request_duration_seconds_bucket",
                 [&](std::string_view labels, const Counter& counter) {
                   double bound = 0;
                   const std::string le = LabelOf(labels, "le");
                   if (!absl::SimpleAtod(le, &bound) || std::isnan(bound)) return;
                   computing.insert(OperationOf(labels));
                   rows[RowOf(labels)].latency[bound] += counter.per_second;
                 });
  ForEachCounter(rates, kRequests, [&](std::string_view labels, const Counter& counter) {
    if (!computing.contains(OperationOf(labels))) return;
    Work& row = rows[RowOf(labels)];
    row.used = row.used || counter.total > 0;
    (LabelOf(labels, "code") == "OK" ? row.requests : row.errors) += counter.per_second;
  });
  const auto add = [&](std::string_view name, double Work::*rate, std::string_view part = "") {
    ForEachCounter(rates, name, [&](std::string_view labels, const Counter& counter) {
      if (labels.find(part) == std::string_view::npos) return;
      const auto row = rows.find(RowOf(labels));
      if (row == rows.end()) return;
      row->second.used =
          row->second.used || counter.total > 0;  // a model may be used by other methods
      row->second.*rate += counter.per_second;
    });
  };
  add("castor_tokens_total", &Work::tokens);
  add("castor_batch_requests_count", &Work::batches);
  add("castor_batch_requests_sum", &Work::in_batches);
  add("castor_stage_duration_seconds_sum", &Work::compute, "phase=\"compute\"");
  std::erase_if(rows, [](const auto& row) { return !row.second.used; });
  return rows;
}

Work SumOf(const std::map<std::string, Work>& work) {
  Work sum;
  for (const auto& [name, row] : work) {
    for (const auto rate : {&Work::requests, &Work::errors, &Work::tokens, &Work::batches,
                            &Work::in_batches, &Work::compute}) {
      sum.*rate += row.*rate;
    }
    if (name.ends_with(" -")) continue;
    for (const auto& [bound, count] : row.latency) sum.latency[bound] += count;
  }
  return sum;
}

std::optional<Work::Quantile> Work::QuantileOf(double quantile) const {
  if (latency.empty() || !(latency.rbegin()->second > 0)) return std::nullopt;
  const double rank = quantile * latency.rbegin()->second;
  double below = 0, start = 0;
  for (const auto& [bound, count] : latency) {
    if (count >= rank && count > below) {
      if (std::isinf(bound)) break;
      return Quantile{start + (bound - start) * (rank - below) / (count - below)};
    }
    below = std::max(below, count);
    start = bound;
  }
  return Quantile{start, /*beyond=*/true};
}

}  // namespace castor::top

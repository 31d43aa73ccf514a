#include "server/metrics/load_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "server/services/message.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace castor::server {
namespace {

// A batch that ran longer than this counts no longer than this.
constexpr double kLongestBatch = 10;

bool IsFailure(Reason reason) {
  return reason == Reason::kQueueFull || reason == Reason::kOutOfMemory ||
         reason == Reason::kDeadlineExceeded || reason == Reason::kInternal;
}

// Counts never fall; a sample that was taken in between two of an engine's locks may seem to.
double Gain(uint64_t now, uint64_t before) {
  return now > before ? static_cast<double>(now - before) : 0;
}

}  // namespace

LoadSample LoadOf(const EngineStats& stats) {
  LoadSample sample{.queued_seconds = stats.load.queued_seconds};
  for (const WorkStats& work : stats.work) {
    sample.busy_seconds += work.compute_seconds.sum;
    for (const auto& [kernel, requests] : work.requests) sample.answered += requests;
  }
  for (const RefusalStats& refusal : stats.refusals) {
    if (IsFailure(refusal.reason)) sample.failed += refusal.count;
  }
  if (stats.load.max_device_bytes > 0) {
    sample.memory_share = static_cast<double>(stats.load.device_bytes) /
                          static_cast<double>(stats.load.max_device_bytes);
  }
  return sample;
}

void LoadMeter::Update(const LoadSample& sample, TimePoint now) {
  const double passed = Seconds(now - last_look_).count();
  if (passed <= 0) return;
  // A batch counts when it ends. What is more than this look's time belongs to the looks before,
  // and is made up for by those that follow.
  unspent_ += std::max(0.0, sample.busy_seconds - last_.busy_seconds);
  const double busy = std::min(unspent_, passed);
  unspent_ = std::min(unspent_ - busy, kLongestBatch);

  const double fresh = 1 - std::exp(-passed / kMemory.count());
  busy_ += fresh * (busy / passed - busy_);
  answered_ += fresh * (Gain(sample.answered, last_.answered) / passed - answered_);
  failed_ += fresh * (Gain(sample.failed, last_.failed) / passed - failed_);
  last_ = sample;
  last_look_ = now;
}

std::string LoadMeter::Report() const {
  const double queued = std::max(0.0, last_.queued_seconds);
  InArena<xds::data::orca::v3::OrcaLoadReport> report;
  report->set_application_utilization(busy_ + queued / kCatchUp.count());
  report->set_rps_fractional(answered_ + failed_);
  report->set_eps(failed_);
  report->set_mem_utilization(std::clamp(last_.memory_share, 0.0, 1.0));
  (*report->mutable_named_metrics())["castor_queued_seconds"] = queued;
  return report->SerializeAsString();
}

LoadReports::LoadReports(std::function<LoadSample()> sample, TimePoint now)
    : sample_(std::move(sample)),
      renew_at_(now + kRenew),
      meter_(sample_(), now),
      report_(meter_.Report()) {}

std::string LoadReports::Trailer(TimePoint now) {
  MutexLock lock(mu_);
  if (now >= renew_at_) {
    meter_.Update(sample_(), now);
    report_ = meter_.Report();
    renew_at_ = now + kRenew;
  }
  return report_;
}

}  // namespace castor::server

#include "engine/jobs/timeline.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/base/attributes.h"

namespace castor {
namespace {

// A tenant without entries is forgotten once it has been promised less than this share of the
// device for a while.
constexpr double kForgotten = 1e-3;
// With so many tenants, one that has no entries is forgotten at once.
constexpr size_t kMostTenants = 4096;

// The most that others are counted to take in future of a tenant's time: the rest is its fair share
// in most cases, and a forecast must not grow without bound.
constexpr double kMostAhead = 0.75;
// Requests come irregularly: so many standard deviations more than the mean are counted.
constexpr double kIrregular = 2;

size_t LevelOf(Priority priority) { return static_cast<size_t>(priority); }

}  // namespace

double Timeline::OwnTime(const Candidate& candidate, const Tenant* tenant) {
  const bool has_company = tenant != nullptr && tenant->keys.contains(candidate.batch_key);
  return has_company ? candidate.time.own_us : candidate.time.alone_us();
}

size_t Timeline::Times::ClassOf(double us) {
  if (!(us > 1)) return 0;
  return static_cast<size_t>(std::min(std::ilogb(us), static_cast<int>(kClasses) - 1));
}

size_t Timeline::Times::FirstPassedBy(double us) {
  return ClassOf(us / ActiveRuns::kMuchShorter) + 1;
}

double Timeline::Times::NotPassedBy(double us) const {
  return std::max(0.0, std::accumulate(sums_.begin(), sums_.begin() + FirstPassedBy(us), 0.0));
}

double Timeline::OfOthers(const Tenant* tenant, double weight, double us, double most_us) const {
  const bool waits = tenant != nullptr && !tenant->entries.empty();
  const double others = total_weight_ - (waits ? weight : 0);
  return std::max(0.0, std::min(most_us, us * others / weight));
}

Timeline::Forecast Timeline::Ask(const Candidate& candidate, TimePoint now, double device_us,
                                 double margin) const {
  const double alone_us = candidate.time.alone_us();
  if (size_ == 0) return {.own_us = alone_us};
  const auto found = tenants_.find(candidate.tenant);
  const Tenant* const tenant = found == tenants_.end() ? nullptr : &found->second;
  Forecast forecast{.own_us = OwnTime(candidate, tenant)};
  const double weight = tenant == nullptr ? terms_->WeightOf(candidate.tenant) : tenant->weight;
  const double everybody = times_.NotPassedBy(alone_us);
  const double own = tenant == nullptr ? 0 : tenant->times.NotPassedBy(alone_us);
  forecast.passed_us = std::max(0.0, times_.total() - everybody);
  double ahead = own;
  if (tenant != nullptr) {
    // From the last one on: mostly, a new request is behind all others.
    double behind_us = 0;
    auto behind = tenant->entries.end();
    while (behind != tenant->entries.begin() && candidate.rank < std::prev(behind)->first) {
      --behind;
      behind_us += behind->second.us;
      if (Times::IsNotPassedBy(alone_us, behind->second.us)) ahead -= behind->second.us;
    }
    double until = tenant->times.total() - behind_us;  // an entry's end, without the candidate
    for (; behind != tenant->entries.end() && !forecast.makes_late; ++behind) {
      const Entry& entry = behind->second;
      until += entry.us;
      if (entry.priority < candidate.priority || entry.deadline == TimePoint::max()) continue;
      const auto in_time = [&](double us) {
        const double end =
            device_us + us + OfOthers(tenant, weight, us, times_.total() - tenant->times.total());
        return margin * end <= Microseconds(now, entry.deadline);
      };
      forecast.makes_late = in_time(until) && !in_time(until + forecast.own_us);
    }
  }
  forecast.ahead_us = std::max(ahead, 0.0);  // sums of rounded numbers
  forecast.others_us =
      OfOthers(tenant, weight, forecast.ahead_us + forecast.own_us, everybody - own);
  return forecast;
}

void Timeline::ReadWeights() noexcept {
  const uint64_t version = terms_->version();
  if (version == version_) return;
  version_ = version;
  total_weight_ = 0;
  for (auto& [name, tenant] : tenants_) {
    tenant.weight = terms_->WeightOf(name);
    if (!tenant.entries.empty()) total_weight_ += tenant.weight;
  }
}

// Never inlined into what is noexcept: see batcher.cc.
ABSL_ATTRIBUTE_NOINLINE
Timeline::Place Timeline::DoInsert(const Candidate& candidate, TimePoint now) {
  if (tenants_.size() >= sweep_at_) ForgetIdle(now);
  Place place;
  bool is_new;
  std::tie(place.tenant_, is_new) = tenants_.try_emplace(candidate.tenant);
  Tenant& tenant = place.tenant_->second;
  if (is_new) tenant.weight = terms_->WeightOf(candidate.tenant);
  if (tenant.entries.empty()) total_weight_ += tenant.weight;
  auto company = tenant.keys.find(candidate.batch_key);
  const bool alone = company == tenant.keys.end();
  if (alone) company = spare_keys_.Insert(tenant.keys, candidate.batch_key, 0);
  Entry entry{.us = alone ? candidate.time.alone_us() : candidate.time.own_us,
              .pays_for_batch = alone,
              .deadline = candidate.deadline,
              .priority = candidate.priority,
              .company = company};
  ++entry.company->second;
  ++size_;
  tenant.times.Add(entry.us);
  times_.Add(entry.us);
  tenant.admitted.Add(entry.us, now);
  admitted_[LevelOf(candidate.priority)].Add(entry.us, now);
  place.entry_ = spare_entries_.Insert(tenant.entries, candidate.rank, entry);
  return place;
}

void Timeline::AdjustTime(Place place, const PredictedTime& time) noexcept {
  Entry& entry = place.entry_->second;
  const double us = entry.pays_for_batch ? time.alone_us() : time.own_us;
  for (Times* const times : {&place.tenant_->second.times, &times_}) {
    times->Remove(entry.us);
    times->Add(us);
  }
  entry.us = us;
}

void Timeline::Remove(Place place) noexcept {
  Tenant& tenant = place.tenant_->second;
  const Entry entry = spare_entries_.Take(tenant.entries, place.entry_);
  if (--entry.company->second == 0) spare_keys_.Take(tenant.keys, entry.company);
  --size_;
  tenant.times.Remove(entry.us);
  times_.Remove(entry.us);
  if (tenant.entries.empty()) {
    tenant.times = {};
    total_weight_ -= tenant.weight;
  }
  if (size_ > 0) return;
  times_ = {};
  total_weight_ = 0;
}

double Timeline::UntilServed(const std::string& tenant, double part) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return 0;
  const Tenant& own = found->second;
  const double us = part * own.times.total();
  return us + OfOthers(&own, own.weight, us, times_.total() - own.times.total());
}

double Timeline::ShareAhead(const std::string& tenant, Priority priority, double ahead_us,
                            TimePoint now) const {
  const auto found = tenants_.find(tenant);
  const Tenant* const own = found == tenants_.end() ? nullptr : &found->second;
  double most = 0;
  for (size_t window = 0; window < Admitted::kWindows; ++window) {
    most = std::max(most, ShareIn(window, own, priority, ahead_us, now));
  }
  return most;
}

double Timeline::ShareIn(size_t window, const Tenant* own, Priority priority, double ahead_us,
                         TimePoint now) const {
  Promises::Rate others;
  Promises::Rate higher;
  for (size_t level = 0; level < kLevels; ++level) {
    const Promises::Rate rate = admitted_[level].windows[window].At(now);
    others += rate;
    if (level > LevelOf(priority)) higher += rate;
  }
  if (own != nullptr) others -= own->admitted.windows[window].At(now);
  const double mean = std::clamp(std::max(others.mean, higher.mean), 0.0, kMostAhead);
  if (mean == 0) return 0;
  const double wait_s = std::max(ahead_us, 1.0) * 1e-6 / (1 - mean);
  const auto share = [wait_s](const Promises::Rate& rate) {
    return rate.mean + kIrregular * std::sqrt(std::max(rate.variance, 0.0) / wait_s);
  };
  return std::clamp(std::max(share(others), share(higher)), 0.0, kMostAhead);
}

void Timeline::ForgetIdle(TimePoint now) {
  const bool crowded = tenants_.size() >= kMostTenants;
  for (auto at = tenants_.begin(); at != tenants_.end();) {
    Tenant& tenant = at->second;
    const bool idle = tenant.entries.empty() &&
                      (crowded || tenant.admitted.windows.back().At(now).mean < kForgotten);
    at = idle ? tenants_.erase(at) : std::next(at);
  }
  // Twice as many, so that a sweep is paid for by the tenants that came since the last.
  sweep_at_ = std::max(tenants_.size(), std::min(2 * tenants_.size(), kMostTenants)) + kFewTenants;
}

}  // namespace castor

#include "engine/ledger/tenants.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "engine/option_bounds.h"

namespace castor {
namespace {

// The largest share that forecasts give to requests which arrive later: the rest is a tenant's fair
// share in most cases, and forecasts must not grow without bound.
constexpr double kMaxShareAhead = 0.75;

size_t LevelOf(Priority priority) { return static_cast<size_t>(priority); }

bool QuotaUsedUp(const Tenant& tenant) {
  const auto parts = UsesOf({0, 0, 0}, tenant.in_use, QuotaOf(tenant.terms));
  return std::any_of(parts.begin(), parts.end(),
                     [](const BudgetUse& part) { return part.used >= part.budget; });
}

bool WasRefused(const Tenant& tenant, TimePoint now) {
  return tenant.refused && now - *tenant.refused <= Tenant::kRecent;
}

}  // namespace

double TimesBySize::NotPreemptedBy(double us) const {
  return std::max(0.0, std::accumulate(sums_.begin(), sums_.begin() + FirstPreemptedBy(us), 0.0));
}

// ---- Records.

Tenants::Terms Tenants::SetTerms(Terms terms) {
  for (auto& [name, of] : terms) {
    of.weight =
        std::isnan(of.weight) ? 1 : std::clamp(of.weight, kMinTenantWeight, kMaxTenantWeight);
    for (int64_t* const quota :
         {&of.max_queued_requests, &of.max_queued_tokens, &of.max_queued_bytes}) {
      *quota = std::max<int64_t>(*quota, 0);
    }
  }
  terms_.swap(terms);
  total_weight_ = 0;
  for (auto& [name, tenant] : tenants_) {
    tenant->terms = TermsOf(name);
    const double weight = tenant->terms.weight;
    tokenizing.Reweigh(tenant->tokenizing, weight);
    device.Reweigh(tenant->device, weight);
    answering.Reweigh(tenant->answering, weight);
    if (!tenant->line.empty()) total_weight_ += weight;
    UpdateDemand(*tenant);
  }
  return terms;
}

TenantTerms Tenants::TermsOf(const std::string& name) const {
  const auto found = terms_.find(name);
  return found == terms_.end() ? TenantTerms() : found->second;
}

Tenant* Tenants::Find(const std::string& name) {
  const auto found = tenants_.find(name);
  return found == tenants_.end() ? nullptr : found->second.get();
}

Tenant& Tenants::FindOrAdd(const std::string& name, TimePoint now) {
  if (Tenant* const known = Find(name)) return *known;
  for (int looks = 0; looks < 4 && tenants_.size() >= kMany; ++looks) ForgetNext(now);
  auto added = std::make_unique<Tenant>();
  Tenant& tenant = *added;
  tenant.name = name;
  tenant.terms = TermsOf(name);
  const FairShare::Account account{
      .tenant = &tenant, .number = ++last_number_, .weight = tenant.terms.weight};
  tenant.tokenizing = tenant.device = tenant.answering = account;
  tokenizing.Open(tenant.tokenizing);
  device.Open(tenant.device);
  answering.Open(tenant.answering);
  tenants_.emplace(name, std::move(added));
  forget_candidates_.push_back(&tenant);
  return tenant;
}

// Tenants that owe or were refused recently stay, unless there are very many.
void Tenants::ForgetNext(TimePoint now) {
  Tenant& tenant = *forget_candidates_.front();
  forget_candidates_.pop_front();
  const bool wanted = device.Owes(tenant.device) || WasRefused(tenant, now);
  if (!tenant.idle() || tenant.gathered.requests != 0 || (wanted && tenants_.size() < 2 * kMany)) {
    forget_candidates_.push_back(&tenant);
    return;
  }
  if (tenant.refused) EndRefusal(tenant);
  tenants_.erase(tenants_.find(tenant.name));
}

// A tenant that has used up a quota demands nothing: it could not use a share.
void Tenants::UpdateDemand(Tenant& tenant) noexcept {
  const bool asks = (!tenant.idle() || tenant.refused) && !QuotaUsedUp(tenant);
  const double weight = asks ? tenant.terms.weight : 0;
  demand_weight_ += weight - tenant.demand_weight;
  tenant.demand_weight = weight;
}

void Tenants::Refuse(Tenant& tenant, TimePoint now) {
  if (tenant.refused) EndRefusal(tenant);
  tenant.refused = now;
  refused_.emplace(now, &tenant);
  UpdateDemand(tenant);
}

void Tenants::EndRefusal(Tenant& tenant) noexcept {
  refused_.erase({*tenant.refused, &tenant});
  tenant.refused.reset();
  UpdateDemand(tenant);
}

double Tenants::ShareOfBudgets(const Tenant& tenant, TimePoint now) {
  // A few at a time, since the lock is held.
  for (int i = 0; i < 64 && !refused_.empty() && !WasRefused(*refused_.begin()->second, now); ++i) {
    EndRefusal(*refused_.begin()->second);
  }
  return tenant.terms.weight / (demand_weight_ - tenant.demand_weight + tenant.terms.weight);
}

void Tenants::RebaseIfNeeded() {
  const auto rebase = [this](FairShare& share, FairShare::Account Tenant::*account) {
    if (!share.NeedsRebase()) return;
    for (auto& [name, tenant] : tenants_) share.Rebase((*tenant).*account);
    share.FinishRebase();
  };
  rebase(tokenizing, &Tenant::tokenizing);
  rebase(device, &Tenant::device);
  rebase(answering, &Tenant::answering);
}

// ---- The line.

double Tenants::OwnTime(const Job& job, const Tenant* tenant) const {
  const bool shares_key = tenant != nullptr && tenant->keys.contains(job.batch_key);
  return shares_key ? job.predicted.own_us : job.predicted.alone_us();
}

void Tenants::Enter(Tenant& tenant, const Job& job, TimePoint now) {
  if (tenant.line.empty()) total_weight_ += tenant.terms.weight;
  const auto [same_key, is_first] = tenant.keys.try_emplace(job.batch_key, 0);
  ++same_key->second;
  const Waiting waiting{.us = is_first ? job.predicted.alone_us() : job.predicted.own_us,
                        .charged_batch_cost = is_first,
                        .deadline = job.deadline.value_or(TimePoint::max()),
                        .priority = job.priority,
                        .same_key = same_key};
  tenant.line.emplace(job.rank, waiting);
  ++waiting_;
  tenant.waiting_us.Add(waiting.us);
  waiting_us_.Add(waiting.us);
  tenant.admitted_us.Add(waiting.us, now);
  admitted_us_[LevelOf(job.priority)].Add(waiting.us, now);
}

void Tenants::SetReady(Tenant& tenant, const Job& job) noexcept {
  Waiting& waiting = tenant.line.find(job.rank)->second;
  waiting.ready = &job;
  tenant.ready_us.Add(job.predicted.alone_us(), 1);
  device.Arrive(tenant.device);
  const double us = waiting.charged_batch_cost ? job.predicted.alone_us() : job.predicted.own_us;
  for (TimesBySize* const times : {&tenant.waiting_us, &waiting_us_}) {
    times->Remove(waiting.us);
    times->Add(us);
  }
  waiting.us = us;
}

void Tenants::EndReady(Tenant& tenant, const Job& job) noexcept {
  tenant.line.find(job.rank)->second.ready = nullptr;
  tenant.ready_us.Add(job.predicted.alone_us(), -1);
  if (!tenant.ready_us.any()) device.Leave(tenant.device);
}

void Tenants::Leave(Tenant& tenant, const Rank& place) noexcept {
  const auto at = tenant.line.find(place);
  const Waiting waiting = at->second;
  tenant.line.erase(at);
  if (--waiting.same_key->second == 0) tenant.keys.erase(waiting.same_key);
  --waiting_;
  tenant.waiting_us.Remove(waiting.us);
  waiting_us_.Remove(waiting.us);
  if (tenant.line.empty()) {
    tenant.waiting_us = {};  // discards rounding errors
    total_weight_ -= tenant.terms.weight;
  }
  if (waiting_ > 0) return;
  waiting_us_ = {};
  total_weight_ = 0;
}

void Tenants::NeedsNoRun(Tenant& tenant, const Job& job, TimePoint now) noexcept {
  const double us = tenant.line.find(job.rank)->second.us;
  tenant.admitted_us.Add(-us, now);
  admitted_us_[LevelOf(job.priority)].Add(-us, now);
}

// ---- Forecasts.

double Tenants::OfOthers(const Tenant* tenant, double weight, double us, double most_us) const {
  const bool waits = tenant != nullptr && !tenant->line.empty();
  const double others = total_weight_ - (waits ? weight : 0);
  return std::max(0.0, std::min(most_us, us * others / weight));
}

Tenants::QueueForecast Tenants::ForecastQueue(const Job& job, const Tenant* tenant, TimePoint now,
                                              double device_us, double margin) const {
  const double alone_us = job.predicted.alone_us();
  if (none_waiting()) return {.own_us = alone_us};
  QueueForecast forecast{.own_us = OwnTime(job, tenant)};
  const double weight = tenant == nullptr ? TermsOf(job.tenant).weight : tenant->terms.weight;
  const double all_us = waiting_us_.NotPreemptedBy(alone_us);
  const double own = tenant == nullptr ? 0 : tenant->waiting_us.NotPreemptedBy(alone_us);
  forecast.preempted_us = std::max(0.0, waiting_us_.total() - all_us);
  double ahead = own;
  if (tenant != nullptr) {
    // From the end: a new request is usually behind all others.
    double behind_us = 0;
    auto behind = tenant->line.end();
    while (behind != tenant->line.begin() && job.rank < std::prev(behind)->first) {
      --behind;
      behind_us += behind->second.us;
      if (TimesBySize::IsNotPreemptedBy(alone_us, behind->second.us)) ahead -= behind->second.us;
    }
    double until = tenant->waiting_us.total() - behind_us;  // when each ends, without the job
    for (; behind != tenant->line.end() && !forecast.makes_late; ++behind) {
      const Waiting& waiting = behind->second;
      until += waiting.us;
      if (waiting.priority < job.priority || waiting.deadline == TimePoint::max()) continue;
      const auto in_time = [&](double us) {
        const double end =
            device_us + us +
            OfOthers(tenant, weight, us, waiting_us_.total() - tenant->waiting_us.total());
        return margin * end <= Microseconds(now, waiting.deadline);
      };
      forecast.makes_late = in_time(until) && !in_time(until + forecast.own_us);
    }
  }
  forecast.ahead_us = std::max(ahead, 0.0);  // rounding may make it negative
  forecast.others_us = OfOthers(tenant, weight, forecast.ahead_us + forecast.own_us, all_us - own);
  return forecast;
}

double Tenants::ShareOfOthers(const Tenant* tenant, TimePoint now) const {
  double us = tenant == nullptr ? 0 : -tenant->admitted_us.PerSecond(now);
  for (const DecayingSum& level : admitted_us_) us += level.PerSecond(now);
  return std::max(us, 0.0) * 1e-6;
}

double Tenants::ShareAhead(const Tenant* tenant, Priority priority, TimePoint now) const {
  double higher_us = 0;
  for (size_t level = LevelOf(priority) + 1; level < kLevels; ++level) {
    higher_us += admitted_us_[level].PerSecond(now);
  }
  return std::min(std::max(ShareOfOthers(tenant, now), higher_us * 1e-6), kMaxShareAhead);
}

double Tenants::UntilServed(const Tenant& tenant, double part) const {
  const double us = part * tenant.waiting_us.total();
  return us + OfOthers(&tenant, tenant.terms.weight, us,
                       waiting_us_.total() - tenant.waiting_us.total());
}

}  // namespace castor

#include "engine/ledger/tenants.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "engine/option_bounds.h"

namespace castor {
namespace {

// The most that others are counted to take of a tenant's time: the rest is its fair share in most
// cases, and a forecast must not grow without bound.
constexpr double kMostAhead = 0.75;

size_t LevelOf(Priority priority) { return static_cast<size_t>(priority); }

bool UsedUp(const Tenant& tenant) {
  const auto parts = PartsOf({0, 0, 0}, tenant.in_use, QuotaOf(tenant.terms));
  return std::any_of(parts.begin(), parts.end(),
                     [](const BudgetPart& part) { return part.used >= part.budget; });
}

bool WasRefused(const Tenant& tenant, TimePoint now) {
  return tenant.refused && now - *tenant.refused <= Tenant::kRecent;
}

}  // namespace

double TimesBySize::NotPassedBy(double us) const {
  return std::max(0.0, std::accumulate(sums_.begin(), sums_.begin() + FirstPassedBy(us), 0.0));
}

// ---- Records.

Tenants::Terms Tenants::SetTerms(Terms terms) {
  for (auto& [name, of] : terms) {
    of.weight =
        std::isnan(of.weight) ? 1 : std::clamp(of.weight, kLeastTenantWeight, kMostTenantWeight);
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
    Recount(*tenant);
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
  to_look_at_.push_back(&tenant);
  return tenant;
}

// Those that owe or were refused stay, unless there are very many.
void Tenants::ForgetNext(TimePoint now) {
  Tenant& tenant = *to_look_at_.front();
  to_look_at_.pop_front();
  const bool wanted = device.Owes(tenant.device) || WasRefused(tenant, now);
  if (!tenant.idle() || tenant.gathered.requests != 0 || (wanted && tenants_.size() < 2 * kMany)) {
    to_look_at_.push_back(&tenant);
    return;
  }
  if (tenant.refused) EndRefusal(tenant);
  tenants_.erase(tenants_.find(tenant.name));
}

// For those that have used up a quota nothing is kept: they could not take it.
void Tenants::Recount(Tenant& tenant) noexcept {
  const bool asks = (!tenant.idle() || tenant.refused) && !UsedUp(tenant);
  const double weight = asks ? tenant.terms.weight : 0;
  asking_weight_ += weight - tenant.asking_weight;
  tenant.asking_weight = weight;
}

void Tenants::Refuse(Tenant& tenant, TimePoint now) {
  if (tenant.refused) EndRefusal(tenant);
  tenant.refused = now;
  refused_.emplace(now, &tenant);
  Recount(tenant);
}

void Tenants::EndRefusal(Tenant& tenant) noexcept {
  refused_.erase({*tenant.refused, &tenant});
  tenant.refused.reset();
  Recount(tenant);
}

double Tenants::ShareOfBudgets(const Tenant& tenant, TimePoint now) {
  // Some at a time: the lock is held.
  for (int i = 0; i < 64 && !refused_.empty() && !WasRefused(*refused_.begin()->second, now); ++i) {
    EndRefusal(*refused_.begin()->second);
  }
  return tenant.terms.weight / (asking_weight_ - tenant.asking_weight + tenant.terms.weight);
}

void Tenants::StartAnewIfFar() {
  const auto start_anew = [this](FairShare& share, FairShare::Account Tenant::*account) {
    if (!share.IsFar()) return;
    for (auto& [name, tenant] : tenants_) share.StartAnew((*tenant).*account);
    share.FinishAnew();
  };
  start_anew(tokenizing, &Tenant::tokenizing);
  start_anew(device, &Tenant::device);
  start_anew(answering, &Tenant::answering);
}

// ---- The line.

double Tenants::OwnTime(const Job& job, const Tenant* tenant) const {
  const bool has_company = tenant != nullptr && tenant->keys.contains(job.batch_key);
  return has_company ? job.predicted.own_us : job.predicted.alone_us();
}

void Tenants::Enter(Tenant& tenant, const Job& job, TimePoint now) {
  if (tenant.line.empty()) total_weight_ += tenant.terms.weight;
  const auto [company, is_first] = tenant.keys.try_emplace(job.batch_key, 0);
  ++company->second;
  const Waiting waiting{.us = is_first ? job.predicted.alone_us() : job.predicted.own_us,
                        .pays_for_batch = is_first,
                        .deadline = job.deadline.value_or(TimePoint::max()),
                        .priority = job.priority,
                        .company = company};
  tenant.line.emplace(job.rank, waiting);
  ++waiting_;
  tenant.waiting_us.Add(waiting.us);
  waiting_us_.Add(waiting.us);
  tenant.promised_us.Add(waiting.us, now);
  promised_us_[LevelOf(job.priority)].Add(waiting.us, now);
}

void Tenants::SetReady(Tenant& tenant, const Job& job) noexcept {
  Waiting& waiting = tenant.line.find(job.rank)->second;
  waiting.ready = &job;
  tenant.ready_us.Add(job.predicted.alone_us(), 1);
  device.Arrive(tenant.device);
  const double us = waiting.pays_for_batch ? job.predicted.alone_us() : job.predicted.own_us;
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
  if (--waiting.company->second == 0) tenant.keys.erase(waiting.company);
  --waiting_;
  tenant.waiting_us.Remove(waiting.us);
  waiting_us_.Remove(waiting.us);
  if (tenant.line.empty()) {
    tenant.waiting_us = {};  // sums of rounded numbers
    total_weight_ -= tenant.terms.weight;
  }
  if (waiting_ > 0) return;
  waiting_us_ = {};
  total_weight_ = 0;
}

// ---- Forecasts.

double Tenants::OfOthers(const Tenant* tenant, double weight, double us, double most_us) const {
  const bool waits = tenant != nullptr && !tenant->line.empty();
  const double others = total_weight_ - (waits ? weight : 0);
  return std::max(0.0, std::min(most_us, us * others / weight));
}

Tenants::Forecast Tenants::Ask(const Job& job, const Tenant* tenant, TimePoint now,
                               double device_us, double margin) const {
  const double alone_us = job.predicted.alone_us();
  if (nobody_waits()) return {.own_us = alone_us};
  Forecast forecast{.own_us = OwnTime(job, tenant)};
  const double weight = tenant == nullptr ? TermsOf(job.tenant).weight : tenant->terms.weight;
  const double everybody = waiting_us_.NotPassedBy(alone_us);
  const double own = tenant == nullptr ? 0 : tenant->waiting_us.NotPassedBy(alone_us);
  forecast.passed_us = std::max(0.0, waiting_us_.total() - everybody);
  double ahead = own;
  if (tenant != nullptr) {
    // From the last one on: mostly, a new request is behind all others.
    double behind_us = 0;
    auto behind = tenant->line.end();
    while (behind != tenant->line.begin() && job.rank < std::prev(behind)->first) {
      --behind;
      behind_us += behind->second.us;
      if (TimesBySize::IsNotPassedBy(alone_us, behind->second.us)) ahead -= behind->second.us;
    }
    double until = tenant->waiting_us.total() - behind_us;  // one's end, without the job
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
  forecast.ahead_us = std::max(ahead, 0.0);  // sums of rounded numbers
  forecast.others_us =
      OfOthers(tenant, weight, forecast.ahead_us + forecast.own_us, everybody - own);
  return forecast;
}

double Tenants::ShareOfOthers(const Tenant* tenant, TimePoint now) const {
  double us = tenant == nullptr ? 0 : -tenant->promised_us.PerSecond(now);
  for (const DecayingSum& level : promised_us_) us += level.PerSecond(now);
  return std::max(us, 0.0) * 1e-6;
}

double Tenants::ShareAhead(const Tenant* tenant, Priority priority, TimePoint now) const {
  double higher_us = 0;
  for (size_t level = LevelOf(priority) + 1; level < kLevels; ++level) {
    higher_us += promised_us_[level].PerSecond(now);
  }
  return std::min(std::max(ShareOfOthers(tenant, now), higher_us * 1e-6), kMostAhead);
}

double Tenants::UntilServed(const Tenant& tenant, double part) const {
  const double us = part * tenant.waiting_us.total();
  return us + OfOthers(&tenant, tenant.terms.weight, us,
                       waiting_us_.total() - tenant.waiting_us.total());
}

}  // namespace castor

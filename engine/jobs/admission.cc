#include "engine/jobs/admission.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>

#include "absl/base/attributes.h"
#include "engine/base/error.h"

namespace castor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Bounds of the hint. The lower keeps refused callers from spinning; the upper keeps one slow
// second from sending them away for an hour.
constexpr milliseconds kMinRetry{5};
constexpr milliseconds kMaxRetry{10'000};
// The hint when the room is taken by what the device is not busy with, such as answers on their
// way.
constexpr milliseconds kUnknownRetry{200};

// Predictions are mostly within a quarter; a wait may also grow by what comes meanwhile. Above all
// when load begins: nobody knows yet how much of the machine the callers themselves will take, or
// other tenants. Beside the device's time a request needs a moment for everything else.
constexpr double kMargin = 1.25;
constexpr double kWaitMargin = 1.5;
constexpr double kDoubtfulWaitMargin = 2.5;
constexpr double kOverheadUs = 1000;

// How often an idle device takes a request that only its uncorrected prediction lets in.
constexpr std::chrono::seconds kTrialInterval{1};

// The last part of each budget is for tenants that have less than their share of it, so that one
// which fills the queue does not keep the others out.
constexpr int64_t kLastPart = 8;
constexpr std::chrono::seconds kRememberRefused{5};
constexpr size_t kMostTenants = 4096;

milliseconds Hint(double us) {
  if (!(us > 0)) return kUnknownRetry;
  const double ms = std::min(us * 1e-3, static_cast<double>(kMaxRetry.count()));
  return std::clamp(milliseconds(static_cast<int64_t>(ms) + 1), kMinRetry, kMaxRetry);
}

// "1.23 s", "45 ms".
std::string InWords(double us) {
  char text[32];
  if (us < 999'500) {
    std::snprintf(text, sizeof(text), "%.*f ms", us < 9950 ? 1 : 0, us * 1e-3);
  } else {
    std::snprintf(text, sizeof(text), "%.*f s", us < 9.95e6 ? 1 : 0, us * 1e-6);
  }
  return text;
}

double InUs(microseconds time) { return static_cast<double>(time.count()); }

void Add(Cost* to, const Cost& cost) {
  to->requests += cost.requests;
  to->tokens += cost.tokens;
  to->bytes += cost.bytes;
}

Cost Minus(const Cost& cost) { return {-cost.requests, -cost.tokens, -cost.bytes}; }

// The budgets as one list, for what is done to each.
struct Part {
  int64_t cost;
  int64_t used;
  int64_t budget;
  const char* name;

  bool used_up() const { return used >= budget; }
  int64_t missing() const { return cost - (budget - used); }  // no sum can overflow
};
struct Parts {
  Part parts[3];

  Parts(const Cost& cost, const Cost& used, const Cost& budget)
      : parts{{cost.requests, used.requests, budget.requests, "requests"},
              {cost.tokens, used.tokens, budget.tokens, "tokens"},
              {cost.bytes, used.bytes, budget.bytes, "bytes"}} {}
  const Part* begin() const { return parts; }
  const Part* end() const { return parts + 3; }
};

// The most that a tenant may have admitted.
Cost QuotaOf(const TenantTerms& terms) {
  const auto or_any = [](int64_t quota) {
    return quota == 0 ? std::numeric_limits<int64_t>::max() : quota;
  };
  return {or_any(terms.max_queued_requests), or_any(terms.max_queued_tokens),
          or_any(terms.max_queued_bytes)};
}

bool UsedUp(const Cost& used, const TenantTerms& terms) {
  const Parts parts({0, 0, 0}, used, QuotaOf(terms));
  return std::any_of(parts.begin(), parts.end(), std::mem_fn(&Part::used_up));
}

absl::Status CheckBudget(const Part& part, const char* whose) {
  if (part.cost <= part.budget) return absl::OkStatus();
  return MakeError(Reason::kTooLarge, "the request takes " + std::to_string(part.cost) + " " +
                                          part.name + ", " + whose + " " +
                                          std::to_string(part.budget));
}

}  // namespace

void Reservation::Adjust(int64_t tokens, int64_t bytes) noexcept {
  if (admission_ == nullptr) return;
  admission_->Adjust(tenant_, {0, tokens - cost_.tokens, bytes - cost_.bytes});
  cost_.tokens = tokens;
  cost_.bytes = bytes;
}

absl::Status Reservation::CheckMemory(const MemoryNeed& memory) const {
  return admission_ == nullptr ? absl::OkStatus() : admission_->CheckMemory(memory);
}

void Reservation::AdjustTime(const PredictedTime& time) noexcept {
  if (place_) admission_->AdjustTime(*place_, time);
}

void Reservation::LeaveQueue() noexcept {
  if (!place_) return;
  admission_->Remove(*place_);
  place_.reset();
}

void Reservation::Release() noexcept {
  if (admission_ == nullptr) return;
  LeaveQueue();
  admission_->Adjust(tenant_, Minus(cost_));
  admission_.reset();
}

void Reservation::KeepOnly(int64_t bytes) noexcept {
  if (admission_ == nullptr) return;
  LeaveQueue();
  const Cost kept{0, 0, std::min(bytes, cost_.bytes)};
  admission_->Adjust(tenant_, {-cost_.requests, -cost_.tokens, kept.bytes - cost_.bytes});
  cost_ = kept;
}

absl::Status Admission::CheckAlone(const Cost& cost, const std::string& tenant) const {
  return CheckAlone(cost, QuotaOf(terms_->of(tenant)));
}

absl::Status Admission::CheckAlone(const Cost& cost, const Cost& quota) const {
  for (const Part& part : Parts(cost, {0, 0, 0}, budgets_.most)) {
    if (auto status = CheckBudget(part, "this engine admits"); !status.ok()) return status;
  }
  for (const Part& part : Parts(cost, {0, 0, 0}, quota)) {
    if (auto status = CheckBudget(part, "its tenant's quota is"); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Admission::CheckTime(const PredictedTime& time) const {
  if (time.alone_us() <= InUs(budgets_.request_time)) return absl::OkStatus();
  return MakeError(Reason::kTooLarge,
                   "the request would take about " + InWords(time.alone_us()) +
                       " of the device, this engine admits " +
                       InWords(InUs(budgets_.request_time)) +
                       " (--max-request-time); a kernel that is not quadratic takes less");
}

absl::Status Admission::CheckMemory(const MemoryNeed& memory) const {
  const int64_t bytes = memory.bytes();
  const int64_t most = device_memory_->for_runs();
  if (bytes <= most) return absl::OkStatus();
  return MakeError(
      Reason::kTooLarge,
      "the request would take about " +
          (bytes == attention::Count::kMost ? std::string("2^63") : std::to_string(bytes)) +
          " bytes of the device's memory while it runs, this engine has " + std::to_string(most) +
          " beside its models (--max-device-bytes)");
}

absl::StatusOr<Reservation> Admission::Reserve(const Claim& claim) {
  const Cost quota = QuotaOf(terms_->of(claim.tenant));
  if (auto status = CheckAlone(claim.cost, quota); !status.ok()) return status;
  if (auto status = CheckMemory(claim.memory); !status.ok()) return status;
  if (auto status = CheckTime(claim.time); !status.ok()) return status;
  const TimePoint now = clock_->Now();
  MutexLock lock(mu_);
  ReadTerms();
  if (auto status = CheckQuota(claim, quota); !status.ok()) return status;
  if (auto status = CheckRoom(claim, now); !status.ok()) return status;
  const Timeline::Candidate candidate{
      .tenant = claim.tenant,
      .batch_key = claim.batch_key,
      .rank = RankOf(claim.priority, claim.deadline, now, last_ticket_ + 1),
      .priority = claim.priority,
      .time = claim.time,
      .deadline = claim.deadline.value_or(TimePoint::max())};
  if (auto status = CheckDeadlines(candidate, claim.memory, now); !status.ok()) return status;
  return Take(claim, candidate, now);
}

// Bookkeeping: without memory for it the process ends. Never inlined into what is noexcept: see
// batcher.cc.
ABSL_ATTRIBUTE_NOINLINE
Reservation Admission::DoTake(const Claim& claim, const Timeline::Candidate& candidate,
                              TimePoint now) {
  Reservation reservation;
  reservation.place_ = timeline_.Insert(candidate, now);
  reservation.rank_ = candidate.rank;
  reservation.cost_ = claim.cost;
  Add(&in_use_, claim.cost);
  auto tenant = tenants_.find(claim.tenant);
  if (tenant == tenants_.end()) {
    tenant =
        spare_tenants_.Insert(tenants_, claim.tenant, Tenant{.terms = terms_->of(claim.tenant)});
  }
  Add(&tenant->second.in_use, claim.cost);
  reservation.admission_ = shared_from_this();
  reservation.tenant_ = claim.tenant;
  ++last_ticket_;
  return reservation;
}

// Whether the tenant has so much left of its own quota. Who has not is not remembered as refused:
// room would be kept from the others that this tenant could not take.
absl::Status Admission::CheckQuota(const Claim& claim, const Cost& quota) {
  const auto own = tenants_.find(claim.tenant);
  if (own == tenants_.end()) return absl::OkStatus();
  const Part* scarce = nullptr;
  double first = 0;  // the part of its own requests that has to be answered first
  const Parts parts(claim.cost, own->second.in_use, quota);
  for (const Part& part : parts) {
    if (part.missing() <= 0) continue;
    scarce = &part;
    first = std::max(first, static_cast<double>(part.missing()) /
                                static_cast<double>(std::max<int64_t>(part.used, 1)));
  }
  if (scarce == nullptr) return absl::OkStatus();
  return QueueFull("the queue is full for this tenant: no room in its own quota of " +
                       std::to_string(scarce->budget) + " " + scarce->name,
                   Hint(timeline_.UntilServed(claim.tenant, std::min(first, 1.0))));
}

// Whether the request fits next to what is admitted.
absl::Status Admission::CheckRoom(const Claim& claim, TimePoint now) {
  const char* scarce = nullptr;
  double wait_us = 0;
  for (const Part& part : Parts(claim.cost, in_use_, budgets_.most)) {
    if (part.missing() <= 0) continue;
    scarce = part.name;
    // The part of what is admitted that has to be answered first.
    wait_us = std::max(wait_us, timeline_.total_us() * static_cast<double>(part.missing()) /
                                    static_cast<double>(std::max<int64_t>(part.used, 1)));
  }
  if (scarce != nullptr) {
    if (tenants_.size() < kMostTenants || tenants_.contains(claim.tenant)) {
      const auto [tenant, is_new] = tenants_.try_emplace(claim.tenant);
      if (is_new) tenant->second.terms = terms_->of(claim.tenant);
      tenant->second.refused = now;
    }
    return QueueFull(std::string("the queue is full: no room in the budget of ") + scarce,
                     Hint(wait_us));
  }
  if (tenants_.size() <= 1 && (tenants_.empty() || tenants_.contains(claim.tenant))) {
    return absl::OkStatus();  // nobody else is there
  }
  if (MayTakeLast(claim, now)) return absl::OkStatus();
  return QueueFull("the queue is full: the rest of it is for tenants with less in it",
                   Hint(timeline_.total_us() / kLastPart));
}

// Whether the request leaves the last part of each budget alone, or its tenant has less than its
// share of that budget.
bool Admission::MayTakeLast(const Claim& claim, TimePoint now) {
  const Parts all(claim.cost, in_use_, budgets_.most);
  const auto takes_last = [](const Part& part) {
    return part.cost > part.budget - part.budget / kLastPart - part.used;
  };
  if (std::none_of(all.begin(), all.end(), takes_last)) return true;
  ForgetIdle(now);
  const auto found = tenants_.find(claim.tenant);
  if (found == tenants_.end()) return true;
  const Tenant& asking = found->second;
  double weights = 0;
  for (const auto& [name, tenant] : tenants_) {
    // For those that have used up a quota nothing is kept: they could not take it.
    if (&tenant != &asking && UsedUp(tenant.in_use, tenant.terms)) continue;
    weights += tenant.terms.weight;
  }
  const double share = asking.terms.weight / weights;
  const Parts mine(claim.cost, asking.in_use, budgets_.most);
  return std::equal(all.begin(), all.end(), mine.begin(), [&](const Part& of_all, const Part& own) {
    const double after = static_cast<double>(own.used) + static_cast<double>(own.cost);
    return !takes_last(of_all) || after <= share * static_cast<double>(own.budget);
  });
}

void Admission::ReadTerms() noexcept {
  const uint64_t version = terms_->version();
  if (version == terms_version_) return;
  terms_version_ = version;
  for (auto& [name, tenant] : tenants_) tenant.terms = terms_->of(name);
  timeline_.ReadWeights();
}

void Admission::ForgetIdle(TimePoint now) {
  if (now < next_forgetting_) return;
  next_forgetting_ = now + kRememberRefused;
  std::erase_if(tenants_, [now](const auto& tenant) {
    const auto& refused = tenant.second.refused;
    return tenant.second.idle() && (!refused || now - *refused > kRememberRefused);
  });
}

Admission::Outlook Admission::Foresee(const Timeline::Candidate& candidate,
                                      const MemoryNeed& memory, TimePoint now) {
  const ActiveRuns::Wait device =
      runs_.WaitFor(candidate.time.alone_us(), now, device_memory_->for_runs() - memory.bytes());
  const double pace = runs_.Pace(now);
  const Timeline::Forecast forecast = timeline_.Ask(candidate, now, device.us, kMargin * pace);
  double ahead_us = forecast.ahead_us + forecast.others_us;
  if (forecast.ahead_us > 0) {
    // Others may also come while it waits.
    const double share =
        timeline_.ShareAhead(candidate.tenant, candidate.priority, forecast.ahead_us, now);
    ahead_us = std::max(ahead_us, forecast.ahead_us / (1 - share));
  }
  // While it waits, what it passes has as much of the device as those ahead of it.
  constexpr double kPerPassing = ActiveRuns::kOwnShare / (1 - ActiveRuns::kOwnShare);
  ahead_us += std::min(kPerPassing * ahead_us, device.passed_us + forecast.passed_us);
  Outlook outlook{.wait_us = pace * (device.us + ahead_us),
                  .own_us = pace * forecast.own_us,
                  .alone_us = pace * candidate.time.alone_us(),
                  .wait_margin = std::lerp(kWaitMargin, kDoubtfulWaitMargin, runs_.Doubt(now)),
                  .makes_late = forecast.makes_late};
  const bool idle = timeline_.empty() && device.us == 0 && device.passed_us == 0;
  if (idle && candidate.time.correction > 1 && now >= next_trial_) {
    // What was learned can be wrong, and only a run can show it.
    outlook.own_us = outlook.alone_us /= candidate.time.correction;
    next_trial_ = now + kTrialInterval;
  }
  return outlook;
}

// Whether the request, and those that it would overtake, are expected to be answered in time.
absl::Status Admission::CheckDeadlines(const Timeline::Candidate& candidate,
                                       const MemoryNeed& memory, TimePoint now) {
  if (candidate.time.alone_us() == 0) return absl::OkStatus();  // not predicted
  const Outlook outlook = Foresee(candidate, memory, now);
  const double left_us = Microseconds(now, candidate.deadline);
  if (outlook.wait_margin * outlook.wait_us + kMargin * outlook.own_us + kOverheadUs > left_us) {
    absl::Status status = MakeError(
        Reason::kDeadlineExceeded, "the request would take about " + InWords(outlook.own_us) +
                                       " after " + InWords(outlook.wait_us) +
                                       " in the queue, and its deadline is in " + InWords(left_us));
    const bool fits_alone = kMargin * outlook.alone_us + kOverheadUs <= left_us;
    return fits_alone ? WithRetryAfter(std::move(status), Hint(outlook.wait_us)) : status;
  }
  const double most_us = InUs(budgets_.queued_time);
  if (outlook.wait_us > most_us) {
    return QueueFull("the queue is full: the request would wait for about " +
                         InWords(outlook.wait_us) + ", this engine admits " + InWords(most_us),
                     Hint(outlook.wait_us - most_us));
  }
  if (!outlook.makes_late) return absl::OkStatus();
  return QueueFull(
      "the queue is full: the request would make others late that were admitted before",
      Hint(outlook.wait_us));
}

void Admission::Adjust(const std::string& tenant, const Cost& by) noexcept {
  MutexLock lock(mu_);
  Add(&in_use_, by);
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return;  // it had given back everything before
  Add(&found->second.in_use, by);
  if (found->second.idle() && !found->second.refused) spare_tenants_.Take(tenants_, found);
}

void Admission::AdjustTime(Timeline::Place place, const PredictedTime& time) noexcept {
  MutexLock lock(mu_);
  timeline_.AdjustTime(place, time);
}

void Admission::Remove(Timeline::Place place) noexcept {
  MutexLock lock(mu_);
  timeline_.Remove(place);
}

AdmissionLoad Admission::load() const {
  MutexLock lock(mu_);
  AdmissionLoad load{.in_use = in_use_, .queued_us = timeline_.total_us()};
  for (const Part& part : Parts({0, 0, 0}, in_use_, budgets_.most)) {
    load.saturation = std::max(load.saturation,
                               static_cast<double>(part.used) / static_cast<double>(part.budget));
  }
  load.saturation = std::max(load.saturation, load.queued_us / InUs(budgets_.queued_time));
  load.saturation = std::min(load.saturation, 1.0);
  return load;
}

}  // namespace castor

// Admission. Budgets bound all that is admitted and not yet answered, in requests, tokens,
// bytes of staging memory and predicted time. A request that is not expected to meet its deadline
// is refused before it has cost anything, so admitted requests are expected to be answered in time.
// The device's memory is taken when a batch begins: a request is refused here only if it could
// never get as much as it needs. A tenant's quota is a budget over what that tenant has admitted.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "engine/attention/problem.h"
#include "engine/base/error.h"
#include "engine/ledger/ledger.h"

namespace castor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Bounds of the hint. The lower one keeps refused callers from spinning; the upper one keeps one
// slow second from sending them away for an hour.
constexpr milliseconds kMinRetry{5};
constexpr milliseconds kMaxRetry{10'000};
// The hint when no waiting request takes the room, but for example answers on their way.
constexpr milliseconds kUnknownRetry{200};

// A wait may be longer than its forecast: predictions are inexact, and other requests may arrive.
// When load starts the slowdown is not yet known, so its uncertainty is added to the margin. The
// overhead is the time of a request outside the device.
constexpr double kWaitMargin = 1.5;
constexpr double kOverheadUs = 1000;

// An eighth of each budget is reserved for tenants below their share of it, so that a tenant that
// fills the queue does not keep the others out.
constexpr int64_t kReserveFraction = 8;

// Before admission callers may gather a sixteenth of the byte budget, in addition to that budget.
constexpr int64_t kGatheredFraction = 16;

milliseconds Hint(double us) {
  if (!(us > 0)) return kUnknownRetry;
  const double ms = std::min(us * 1e-3, static_cast<double>(kMaxRetry.count()));
  return std::clamp(milliseconds(static_cast<int64_t>(ms) + 1), kMinRetry, kMaxRetry);
}

// "1.2 s", "45 ms". printf would take longer than the rest of an error's text.
std::string InWords(double us) {
  const bool seconds = us >= 999'500;
  const double value = us * (seconds ? 1e-6 : 1e-3);
  const auto tenths = static_cast<int64_t>(std::clamp(value, 0.0, 1e15) * 10 + 0.5);
  std::string text = std::to_string(tenths < 100 ? tenths / 10 : (tenths + 5) / 10);
  if (tenths < 100) text += '.', text += static_cast<char>('0' + tenths % 10);
  return text += seconds ? " s" : " ms";
}

double InUs(microseconds time) { return static_cast<double>(time.count()); }

absl::Status CheckBudget(const BudgetUse& part, const char* whose) {
  if (part.cost <= part.budget) return absl::OkStatus();
  return MakeError(Reason::kTooLarge, "the request takes " + std::to_string(part.cost) + " " +
                                          part.name + "; " + whose + " " +
                                          std::to_string(part.budget));
}

}  // namespace

absl::Status Ledger::CheckAlone(const Cost& cost, const std::string& tenant) const {
  MutexLock lock(mu_);
  return CheckAloneLocked(cost, QuotaOf(tenants_.TermsOf(tenant)));
}

absl::Status Ledger::CheckAloneLocked(const Cost& cost, const Cost& quota) const {
  for (const BudgetUse& part : UsesOf(cost, {0, 0, 0}, budgets_.most)) {
    if (auto status = CheckBudget(part, "this engine admits"); !status.ok()) return status;
  }
  for (const BudgetUse& part : UsesOf(cost, {0, 0, 0}, quota)) {
    if (auto status = CheckBudget(part, "its tenant's quota is"); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Ledger::CheckTime(const PredictedTime& time) const {
  // Ignore the learned factor here: refusing by a wrong factor would prevent the run that corrects
  // it.
  const double us = time.alone_us() / std::max(1.0, time.correction);
  if (us <= InUs(budgets_.request_time)) return absl::OkStatus();
  return MakeError(Reason::kTooLarge,
                   "the request would occupy the device for about " + InWords(us) +
                       "; this engine admits " + InWords(InUs(budgets_.request_time)) +
                       " (--max-request-time); a kernel that is not quadratic takes less");
}

absl::Status Ledger::CheckMemory(const MemoryNeed& memory) const {
  const int64_t bytes = memory.bytes();
  const int64_t most = device_memory_.for_runs();
  if (bytes <= most) return absl::OkStatus();
  return MakeError(
      Reason::kTooLarge,
      "the request would take about " +
          (bytes == attention::Count::kMost ? std::string("2^63") : std::to_string(bytes)) +
          " bytes of the device's memory while it runs; this engine has " + std::to_string(most) +
          " besides its models' weights (--max-device-bytes)");
}

absl::Status Ledger::Admit(Job& job) {
  if (auto status = CheckTime(job.predicted); !status.ok()) return status;
  if (auto status = CheckMemory(job.memory); !status.ok()) return status;
  const TimePoint now = clock_->Now();
  const Guard guard(*this);
  if (auto status = CheckOpen(); !status.ok()) return status;
  Tenant* const tenant = tenants_.Find(job.tenant);
  const Cost quota = QuotaOf(tenant == nullptr ? tenants_.TermsOf(job.tenant) : tenant->terms);
  if (auto status = CheckAloneLocked(job.cost, quota); !status.ok()) return status;
  if (tenant != nullptr) {
    if (auto status = CheckQuota(job.cost, *tenant); !status.ok()) return status;
  }
  if (auto status = CheckRoom(job, tenant, now); !status.ok()) return status;
  job.rank = RankOf(job.priority, job.deadline, now, last_ticket_ + 1);
  if (auto status = CheckDeadlines(job, tenant, now); !status.ok()) return status;
  TakeBudgets(job, now);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> Ledger::Reserve(const std::string& name, int64_t bytes) {
  const auto reserved = std::make_shared<Reservation>();  // its destructor takes the lock
  const TimePoint now = clock_->Now();
  const Guard guard(*this);
  if (auto status = CheckOpen(); !status.ok()) return status;
  Tenant& tenant = tenants_.FindOrAdd(name, now);
  const Cost cost{.bytes = bytes};
  if (auto s = CheckAloneLocked(cost, QuotaOf(tenant.terms)); !s.ok()) return s;
  if (auto status = CheckQuota(cost, tenant); !status.ok()) return status;
  const int64_t most = budgets_.most.bytes / kGatheredFraction;
  if (bytes > most - gathered_.bytes || bytes > most / 4 * 3 - tenant.gathered.bytes) {
    return QueueFull("queue full: too many bytes wait for the rest of their requests",
                     kUnknownRetry);
  }
  Adjust(tenant, cost, /*gathers=*/true);
  reserved->tenant_ = &tenant;
  reserved->cost_ = cost;
  reserved->gathers_ = true;
  reserved->ledger_ = shared_from_this();
  return reserved;
}

// Never inlined into a noexcept function: when an exception reaches one that has locals to destroy,
// GCC calls std::terminate without a current exception, and the handler could not log why the
// process ends.
ABSL_ATTRIBUTE_NOINLINE
void Ledger::DoTakeBudgets(Job& job, TimePoint now) {
  Tenant& tenant = tenants_.FindOrAdd(job.tenant, now);
  job.ticket = ++last_ticket_;
  job.reservation.tenant_ = &tenant;
  job.reservation.cost_ = job.cost;
  job.reservation.place_ = job.rank;
  Adjust(tenant, job.cost);
  tenants_.Enter(tenant, job, now);
  job.reservation.ledger_ = shared_from_this();
}

// Whether the request fits in what is left of its tenant's quota. Do not mark a tenant over its
// quota as refused: that would reserve room it cannot use.
absl::Status Ledger::CheckQuota(const Cost& cost, const Tenant& tenant) {
  const BudgetUse* scarce = nullptr;
  double first = 0;  // the fraction of its requests that must be answered first
  Cost held = tenant.in_use;
  held += tenant.gathered;
  const auto parts = UsesOf(cost, held, QuotaOf(tenant.terms));
  for (const BudgetUse& part : parts) {
    if (part.missing() <= 0) continue;
    scarce = &part;
    first = std::max(first, part.missing_fraction());
  }
  if (scarce == nullptr) return absl::OkStatus();
  return QueueFull("queue full for this tenant: no room in its quota of " +
                       std::to_string(scarce->budget) + " " + scarce->name,
                   Hint(tenants_.UntilServed(tenant, std::min(first, 1.0))));
}

// Whether the request fits next to what is admitted.
absl::Status Ledger::CheckRoom(const Job& job, Tenant* tenant, TimePoint now) {
  const char* scarce = nullptr;
  double wait_us = 0;
  for (const BudgetUse& part : UsesOf(job.cost, in_use_, budgets_.most)) {
    if (part.missing() <= 0) continue;
    scarce = part.name;
    wait_us = std::max(wait_us, tenants_.waiting_us() * part.missing_fraction());
  }
  if (scarce != nullptr) {
    tenants_.Refuse(tenant != nullptr ? *tenant : tenants_.FindOrAdd(job.tenant, now), now);
    return QueueFull(std::string("queue full: no room in the budget of ") + scarce, Hint(wait_us));
  }
  if (MayUseReserve(job, tenant, now)) return absl::OkStatus();
  return QueueFull(
      "queue full: the remaining eighth is reserved for tenants below their share (bytes: for high "
      "priority)",
      Hint(tenants_.waiting_us() / kReserveFraction));
}

// Whether, for each budget, the request fits without the reserve, or its tenant stays within its
// share. A tenant keeps the last part of its share of the bytes for its own requests of high
// priority, which an endless stream of large requests would otherwise shut out.
bool Ledger::MayUseReserve(const Job& job, const Tenant* tenant, TimePoint now) {
  const auto all = UsesOf(job.cost, in_use_, budgets_.most);
  const auto uses_reserve = [](const BudgetUse& part) {
    return part.cost > part.budget - part.budget / kReserveFraction - part.used;
  };
  if (tenant == nullptr || std::none_of(all.begin(), all.end(), uses_reserve)) return true;
  const double share = tenants_.ShareOfBudgets(*tenant, now);
  auto mine = UsesOf(job.cost, tenant->in_use, budgets_.most);
  BudgetUse& bytes = mine.back();
  if (job.priority != Priority::kHigh && bytes.used > 0) {
    bytes.cost +=
        static_cast<int64_t>(share * static_cast<double>(bytes.budget / kReserveFraction));
  }
  return std::equal(
      all.begin(), all.end(), mine.begin(), [&](const BudgetUse& of_all, const BudgetUse& own) {
        const double after = static_cast<double>(own.used) + static_cast<double>(own.cost);
        return !uses_reserve(of_all) || after <= share * static_cast<double>(own.budget);
      });
}

Ledger::LatencyForecast Ledger::ForecastLatency(const Job& job, const Tenant* tenant,
                                                TimePoint now) {
  const Runs::Wait device =
      runs_.WaitFor(job.predicted.alone_us(), now, device_memory_.for_runs() - job.memory.bytes());
  const double slowdown = runs_.Slowdown(now);
  const Tenants::QueueForecast forecast =
      tenants_.ForecastQueue(job, tenant, now, device.us, kPredictionMargin * slowdown);
  double ahead_us = forecast.ahead_us + forecast.others_us;
  if (forecast.ahead_us > 0) {
    // More requests may arrive while it waits.
    const double share = tenants_.ShareAhead(tenant, job.priority, now);
    ahead_us = std::max(ahead_us, forecast.ahead_us / (1 - share));
  }
  // Preempted runs keep half of the device, so count them up to the wait again.
  constexpr double kPerPreemption = Runs::kOwnShare / (1 - Runs::kOwnShare);
  ahead_us += std::min(kPerPreemption * ahead_us, device.preempted_us + forecast.preempted_us);
  LatencyForecast latency{.wait_us = slowdown * (device.us + ahead_us),
                          .own_us = slowdown * forecast.own_us,
                          .alone_us = slowdown * job.predicted.alone_us(),
                          .wait_margin = kWaitMargin + runs_.SlowdownUncertainty(now),
                          .makes_late = forecast.makes_late};
  const bool idle = tenants_.none_waiting() && runs_.empty();
  if (idle && job.predicted.correction > 1 && now >= next_trial_) {
    // The learned factor may be wrong, and only a run can show that. Now and then ignore it.
    latency.own_us = latency.alone_us /= job.predicted.correction;
    next_trial_ = now + Runs::kRecent;
  }
  return latency;
}

// Whether the request and those that it would overtake are expected to meet their deadlines.
absl::Status Ledger::CheckDeadlines(const Job& job, const Tenant* tenant, TimePoint now) {
  if (job.predicted.alone_us() == 0) return absl::OkStatus();  // not predicted
  const LatencyForecast latency = ForecastLatency(job, tenant, now);
  const double left_us = Microseconds(now, job.deadline.value_or(TimePoint::max()));
  if (latency.wait_margin * latency.wait_us + kPredictionMargin * latency.own_us + kOverheadUs >
      left_us) {
    absl::Status status = MakeError(
        Reason::kDeadlineExceeded, "the request would take about " + InWords(latency.own_us) +
                                       " after " + InWords(latency.wait_us) +
                                       " in the queue, and its deadline is in " + InWords(left_us));
    const bool fits_alone = kPredictionMargin * latency.alone_us + kOverheadUs <= left_us;
    return fits_alone ? WithRetryAfter(std::move(status), Hint(latency.wait_us)) : status;
  }
  const double most_us = InUs(budgets_.queued_time);
  if (latency.wait_us > most_us) {
    return QueueFull("queue full: the request would wait for about " + InWords(latency.wait_us) +
                         "; this engine admits " + InWords(most_us),
                     Hint(latency.wait_us - most_us));
  }
  if (!latency.makes_late) return absl::OkStatus();
  return QueueFull("queue full: admitting this would make earlier requests miss their deadlines",
                   Hint(latency.wait_us));
}

}  // namespace castor

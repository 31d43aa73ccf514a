// Who may come in. Budgets bound everything admitted and not yet answered, in requests, tokens,
// bytes of staging memory and predicted time; and a request that cannot be answered by its
// deadline, as far as is predicted, is refused before it has cost anything. So what is admitted is
// expected to be answered in time. The device's memory is taken when a batch begins: a request is
// refused here only if it could never have as much as it needs. A tenant's quota is a budget of its
// own in the same sense, over what the tenant has admitted.
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

// Bounds of the hint. The lower keeps refused callers from spinning; the upper keeps one slow
// second from sending them away for an hour.
constexpr milliseconds kMinRetry{5};
constexpr milliseconds kMaxRetry{10'000};
// The hint when the room is taken by what the device is not busy with, such as answers on their
// way.
constexpr milliseconds kUnknownRetry{200};

// A wait may be longer than its forecast by what predictions are off, and by what comes meanwhile.
// Above all when load begins, and nobody knows yet how much of the machine the callers themselves
// will take, or other tenants: the doubt is added. Beside the device's time a request needs a
// moment for everything else.
constexpr double kWaitMargin = 1.5;
constexpr double kOverheadUs = 1000;

// The last part of each budget is for tenants that have less than their share of it, so that one
// which fills the queue does not keep the others out.
constexpr int64_t kLastPart = 8;

// Before admission callers may gather a sixteenth of the byte budget, in addition to it.
constexpr int64_t kGatheredPart = 16;

milliseconds Hint(double us) {
  if (!(us > 0)) return kUnknownRetry;
  const double ms = std::min(us * 1e-3, static_cast<double>(kMaxRetry.count()));
  return std::clamp(milliseconds(static_cast<int64_t>(ms) + 1), kMinRetry, kMaxRetry);
}

// "1.2 s", "45 ms". Not by printf, which takes longer than the rest of a refusal's words.
std::string InWords(double us) {
  const bool seconds = us >= 999'500;
  const double value = us * (seconds ? 1e-6 : 1e-3);
  const auto tenths = static_cast<int64_t>(std::clamp(value, 0.0, 1e15) * 10 + 0.5);
  std::string text = std::to_string(tenths < 100 ? tenths / 10 : (tenths + 5) / 10);
  if (tenths < 100) text += '.', text += static_cast<char>('0' + tenths % 10);
  return text += seconds ? " s" : " ms";
}

double InUs(microseconds time) { return static_cast<double>(time.count()); }

absl::Status CheckBudget(const BudgetPart& part, const char* whose) {
  if (part.cost <= part.budget) return absl::OkStatus();
  return MakeError(Reason::kTooLarge, "the request takes " + std::to_string(part.cost) + " " +
                                          part.name + ", " + whose + " " +
                                          std::to_string(part.budget));
}

}  // namespace

absl::Status Ledger::CheckAlone(const Cost& cost, const std::string& tenant) const {
  MutexLock lock(mu_);
  return CheckAloneLocked(cost, QuotaOf(tenants_.TermsOf(tenant)));
}

absl::Status Ledger::CheckAloneLocked(const Cost& cost, const Cost& quota) const {
  for (const BudgetPart& part : PartsOf(cost, {0, 0, 0}, budgets_.most)) {
    if (auto status = CheckBudget(part, "this engine admits"); !status.ok()) return status;
  }
  for (const BudgetPart& part : PartsOf(cost, {0, 0, 0}, quota)) {
    if (auto status = CheckBudget(part, "its tenant's quota is"); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Ledger::CheckTime(const PredictedTime& time) const {
  // Were it refused by what was learned, no run could ever show that to be wrong.
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
          " bytes of the device's memory while it runs, this engine has " + std::to_string(most) +
          " beside its models (--max-device-bytes)");
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
  Take(job, now);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> Ledger::Reserve(const std::string& name, int64_t bytes) {
  const auto reserved = std::make_shared<Reservation>();  // whose end takes the lock
  const TimePoint now = clock_->Now();
  const Guard guard(*this);
  if (auto status = CheckOpen(); !status.ok()) return status;
  Tenant& tenant = tenants_.FindOrAdd(name, now);
  const Cost cost{.bytes = bytes};
  if (auto s = CheckAloneLocked(cost, QuotaOf(tenant.terms)); !s.ok()) return s;
  if (auto status = CheckQuota(cost, tenant); !status.ok()) return status;
  const int64_t most = budgets_.most.bytes / kGatheredPart;
  if (bytes > most - gathered_.bytes || bytes > most / 4 * 3 - tenant.gathered.bytes) {
    return QueueFull("the queue is full: too much waits for the rest of its request",
                     kUnknownRetry);
  }
  Adjust(tenant, cost, /*gathers=*/true);
  reserved->tenant_ = &tenant;
  reserved->cost_ = cost;
  reserved->gathers_ = true;
  reserved->ledger_ = shared_from_this();
  return reserved;
}

// Never inlined into what is noexcept: when an exception reaches a noexcept function with locals to
// destroy, GCC calls std::terminate without a current exception, and the handler could not say why
// the process ends.
ABSL_ATTRIBUTE_NOINLINE
void Ledger::DoTake(Job& job, TimePoint now) {
  Tenant& tenant = tenants_.FindOrAdd(job.tenant, now);
  job.ticket = ++last_ticket_;
  job.reservation.tenant_ = &tenant;
  job.reservation.cost_ = job.cost;
  job.reservation.place_ = job.rank;
  Adjust(tenant, job.cost);
  tenants_.Enter(tenant, job, now);
  job.reservation.ledger_ = shared_from_this();
}

// Whether the tenant has so much left of its own quota. One that has not is not remembered as
// refused: room would be kept from the others that this tenant could not take.
absl::Status Ledger::CheckQuota(const Cost& cost, const Tenant& tenant) {
  const BudgetPart* scarce = nullptr;
  double first = 0;  // the part of its own requests that has to be answered first
  Cost held = tenant.in_use;
  held += tenant.gathered;
  const auto parts = PartsOf(cost, held, QuotaOf(tenant.terms));
  for (const BudgetPart& part : parts) {
    if (part.missing() <= 0) continue;
    scarce = &part;
    first = std::max(first, part.missing_part());
  }
  if (scarce == nullptr) return absl::OkStatus();
  return QueueFull("the queue is full for this tenant: no room in its own quota of " +
                       std::to_string(scarce->budget) + " " + scarce->name,
                   Hint(tenants_.UntilServed(tenant, std::min(first, 1.0))));
}

// Whether the request fits next to what is admitted.
absl::Status Ledger::CheckRoom(const Job& job, Tenant* tenant, TimePoint now) {
  const char* scarce = nullptr;
  double wait_us = 0;
  for (const BudgetPart& part : PartsOf(job.cost, in_use_, budgets_.most)) {
    if (part.missing() <= 0) continue;
    scarce = part.name;
    wait_us = std::max(wait_us, tenants_.waiting_us() * part.missing_part());
  }
  if (scarce != nullptr) {
    tenants_.Refuse(tenant != nullptr ? *tenant : tenants_.FindOrAdd(job.tenant, now), now);
    return QueueFull(std::string("the queue is full: no room in the budget of ") + scarce,
                     Hint(wait_us));
  }
  if (MayTakeLast(job, tenant, now)) return absl::OkStatus();
  return QueueFull(
      "the queue is full: the rest is for tenants below their share, and of bytes for high "
      "priority",
      Hint(tenants_.waiting_us() / kLastPart));
}

// Whether the request leaves the last part of each budget alone, or its tenant has less than its
// share of that budget. Of its bytes, a tenant leaves the last part to its own requests of high
// priority: large ones without end would else shut them out.
bool Ledger::MayTakeLast(const Job& job, const Tenant* tenant, TimePoint now) {
  const auto all = PartsOf(job.cost, in_use_, budgets_.most);
  const auto takes_last = [](const BudgetPart& part) {
    return part.cost > part.budget - part.budget / kLastPart - part.used;
  };
  if (tenant == nullptr || std::none_of(all.begin(), all.end(), takes_last)) return true;
  const double share = tenants_.ShareOfBudgets(*tenant, now);
  auto mine = PartsOf(job.cost, tenant->in_use, budgets_.most);
  BudgetPart& bytes = mine.back();
  if (job.priority != Priority::kHigh && bytes.used > 0) {
    bytes.cost += static_cast<int64_t>(share * static_cast<double>(bytes.budget / kLastPart));
  }
  return std::equal(
      all.begin(), all.end(), mine.begin(), [&](const BudgetPart& of_all, const BudgetPart& own) {
        const double after = static_cast<double>(own.used) + static_cast<double>(own.cost);
        return !takes_last(of_all) || after <= share * static_cast<double>(own.budget);
      });
}

Ledger::Outlook Ledger::Foresee(const Job& job, const Tenant* tenant, TimePoint now) {
  const Runs::Wait device =
      runs_.WaitFor(job.predicted.alone_us(), now, device_memory_.for_runs() - job.memory.bytes());
  const double pace = runs_.Pace(now);
  const Tenants::Forecast forecast =
      tenants_.Ask(job, tenant, now, device.us, kPredictionMargin * pace);
  double ahead_us = forecast.ahead_us + forecast.others_us;
  if (forecast.ahead_us > 0) {
    // Others may also come while it waits.
    const double share = tenants_.ShareAhead(tenant, job.priority, now);
    ahead_us = std::max(ahead_us, forecast.ahead_us / (1 - share));
  }
  // While it waits, what it passes has as much of the device as those ahead of it.
  constexpr double kPerPassing = Runs::kOwnShare / (1 - Runs::kOwnShare);
  ahead_us += std::min(kPerPassing * ahead_us, device.passed_us + forecast.passed_us);
  Outlook outlook{.wait_us = pace * (device.us + ahead_us),
                  .own_us = pace * forecast.own_us,
                  .alone_us = pace * job.predicted.alone_us(),
                  .wait_margin = kWaitMargin + runs_.Doubt(now),
                  .makes_late = forecast.makes_late};
  const bool idle = tenants_.nobody_waits() && runs_.empty();
  if (idle && job.predicted.correction > 1 && now >= next_trial_) {
    // What was learned can be wrong, and only a run can show it: one, while it is recent.
    outlook.own_us = outlook.alone_us /= job.predicted.correction;
    next_trial_ = now + Runs::kRecent;
  }
  return outlook;
}

// Whether the request, and those that it would overtake, are expected to be answered in time.
absl::Status Ledger::CheckDeadlines(const Job& job, const Tenant* tenant, TimePoint now) {
  if (job.predicted.alone_us() == 0) return absl::OkStatus();  // not predicted
  const Outlook outlook = Foresee(job, tenant, now);
  const double left_us = Microseconds(now, job.deadline.value_or(TimePoint::max()));
  if (outlook.wait_margin * outlook.wait_us + kPredictionMargin * outlook.own_us + kOverheadUs >
      left_us) {
    absl::Status status = MakeError(
        Reason::kDeadlineExceeded, "the request would take about " + InWords(outlook.own_us) +
                                       " after " + InWords(outlook.wait_us) +
                                       " in the queue, and its deadline is in " + InWords(left_us));
    const bool fits_alone = kPredictionMargin * outlook.alone_us + kOverheadUs <= left_us;
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

}  // namespace castor

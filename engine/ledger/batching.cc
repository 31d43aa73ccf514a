// The formation of batches. A batch starts with the first due request in the order of service.
// Others with its key then join by rank: the batch skips incompatible requests, and compatible ones
// that are too large for the room left in tokens or device memory. Requests that join may overtake
// others, so each joins only as long as
//
// - the batch stays short: once its fixed time is a small part of it, growing it gains little;
// - its tenant would have its turn before the first request's tenant has another;
// - no request in the batch is expected to miss its deadline because of it.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "engine/base/error.h"
#include "engine/ledger/ledger.h"

namespace castor {
namespace {

// Stop growing a batch once its fixed cost is at most this fraction of its time. A shorter batch
// than the minimum may always grow: it does not keep a device with many cores busy.
constexpr double kMaxFixedShare = 1.0 / 16;
constexpr double kMinBatchUs = 5000;
// With a long queue, larger batches amortize the fixed cost; cap them at this fraction of the
// queue. Other tenants need not wait for the whole queue, so batches stay short if other tenants'
// recent share of the device is not negligible.
constexpr double kMaxQueueShare = 1.0 / 4;
constexpr double kNegligibleShare = 0.01;
// The same bounds where several tenants wait: their turns are shorter.
constexpr double kMaxFixedShareOfTurn = 1.0 / 4;
constexpr double kMinTurnUs = 2000;

// The longest job for which a caller may take the engine thread's turn. That saves some 75 µs of
// processor time, 45 of them gRPC's, which answers cheapest on the thread that read the request.
constexpr double kMaxLentUs = 100;

// The time until the job's deadline.
double SpareUs(const Job& job, TimePoint now) {
  return job.deadline ? Microseconds(now, *job.deadline) : std::numeric_limits<double>::infinity();
}

// Whether the job would be late even if it took less than predicted by the usual error. Ignores a
// learned factor above 1: admission lets an idle device try whether such a factor is right.
bool CannotMeetDeadline(const Job& job, TimePoint now, double slowdown) {
  const double us = job.predicted.alone_us() / std::max(1.0, job.predicted.correction);
  return Expired(job, now) || SpareUs(job, now) * kPredictionMargin < slowdown * us;
}

}  // namespace

// ---- Requests that wait.

// Never inlined into a noexcept function: see admission.cc.
ABSL_ATTRIBUTE_NOINLINE
TimePoint Ledger::InsertReady(std::unique_ptr<Job>&& job) {
  Group& group = groups_[job->batch_key];
  group.tokens += job->cost.tokens;
  std::unique_ptr<Job>& place = group.jobs[job->rank];
  place = std::move(job);
  ++ready_;
  return DueAt(group);
}

std::unique_ptr<Job> Ledger::RemoveReady(const Job& job) {
  tenants_.EndReady(TenantOf(job), job);
  const auto group = groups_.find(job.batch_key);
  const auto at = group->second.jobs.find(job.rank);
  std::unique_ptr<Job> taken = std::move(at->second);
  group->second.jobs.erase(at);
  group->second.tokens -= taken->cost.tokens;
  if (group->second.jobs.empty()) groups_.erase(group);
  --ready_;
  return taken;
}

TimePoint Ledger::DueAt(const Group& group) const {
  if (limits_.delay.count() == 0 || limits_.Reached(group.tokens, group.jobs.size())) {
    return TimePoint::min();
  }
  return group.jobs.begin()->second->queued + limits_.delay;
}

// min() if a group is due already, max() if no request waits.
TimePoint Ledger::FirstDueAt() const {
  if (ready_ > 0 && limits_.delay.count() == 0) return TimePoint::min();
  TimePoint first = TimePoint::max();
  for (const auto& [key, group] : groups_) first = std::min(first, DueAt(group));
  return first;
}

// ---- The next request.

Ledger::DeviceSlot Ledger::DeviceSlotNow(DeviceSlot::Kind kind, TimePoint now) const {
  DeviceSlot slot{.kind = kind,
                  .slowdown = runs_.Slowdown(now),
                  .free_bytes = device_memory_.for_runs() - runs_.held_bytes()};
  if (kind == DeviceSlot::Kind::kPreempting) slot.limit = runs_.LimitNow(now);
  return slot;
}

// The first job in the order of service that is due, is short enough, and fits in the device's
// memory.
const Job* Ledger::FirstDue(TimePoint now, const DeviceSlot& slot, Search* search) {
  tenants_.RebaseIfNeeded();
  const bool preempts = slot.kind == DeviceSlot::Kind::kPreempting;
  int looks = Search::kLooks;
  const auto& order = tenants_.device.order();
  for (auto at = order.lower_bound(search->turn); at != order.end(); ++at) {
    const auto& [turn, tenant] = *at;
    if (turn != search->turn) *search = {.turn = turn};
    if (--looks < 0) return nullptr;
    const double most_us = slot.limit.MostUsOf(tenant->name);
    if (most_us <= 0 || !tenant->ready_us.AnyUpTo(most_us)) continue;
    for (auto next = tenant->line.upper_bound(search->rank); next != tenant->line.end(); ++next) {
      if (--looks < 0) return nullptr;
      search->rank = next->first;
      const Job* const job = next->second.ready;
      if (job == nullptr) continue;
      const double us = job->predicted.alone_us();
      if (us > most_us) continue;
      if (preempts && !slot.HasMemoryFor(*job)) continue;
      const double end = tenant->device.time + us / tenant->device.weight;
      if (us > slot.limit.MostUs(tenant->name, end)) continue;  // not its tenant's turn
      if (limits_.delay.count() > 0 && DueAt(groups_.find(job->batch_key)->second) > now) continue;
      // A job that waits for memory is not overtaken, except by preemptors, whose time is limited.
      search->done = !slot.HasMemoryFor(*job);
      return search->done ? nullptr : job;
    }
  }
  search->done = true;
  return nullptr;
}

// ---- Batches.

// A batch while it grows. The engine thread already owns its jobs.
struct Ledger::GrowingBatch {
  const DeviceSlot slot;
  const TimePoint now;
  const std::string key;
  double us = 0;
  double long_enough;  // microseconds
  double spare_us = std::numeric_limits<double>::infinity();
  int64_t tokens = 0;
  MemoryNeed memory = {};
  FairShare::Account& account;  // of the first job's tenant
  const double turn;            // the virtual time at which its turn begins
  const double next_turn;       // the virtual time of its next turn
  Rank looked_at = {};          // the last job of the key that was considered
  JobList jobs = {};

  void Add(const Job& job, double more_us) {
    us += more_us;
    spare_us = std::min(spare_us, SpareUs(job, now));
    tokens += job.cost.tokens;
    memory = memory + job.memory;
  }
};

void Ledger::MoveToBatch(const Job& job, double us, GrowingBatch* batch) {
  tenants_.device.Charge(TenantOf(job).device, us);
  batch->Add(job, us);
  std::unique_ptr<Job>& place = batch->jobs.emplace_back();
  place = RemoveReady(job);
  place->state = Job::State::kRunning;
  ForgetDeadline(*place);
  LeaveLine(place->reservation);
}

// The first request is taken whatever its size: one above the limit runs alone.
void Ledger::StartBatch(const Job& head, TimePoint now, const DeviceSlot& slot,
                        std::optional<GrowingBatch>* batch) {
  FairShare::Account& account = TenantOf(head).device;
  const bool turns = tenants_.device.order().size() > 1;
  const double fixed_us = head.predicted.batch_us;
  double long_enough_us = turns ? std::max(fixed_us / kMaxFixedShareOfTurn, kMinTurnUs)
                                : std::max(fixed_us / kMaxFixedShare, kMinBatchUs);
  if (tenants_.ShareOfOthers(&TenantOf(head), now) < kNegligibleShare) {
    long_enough_us = std::max(long_enough_us, kMaxQueueShare * tenants_.waiting_us());
  }
  const double us = head.predicted.alone_us();
  const double next_turn = account.time + us / account.weight;
  batch->emplace(GrowingBatch{
      .slot = slot,
      .now = now,
      .key = head.batch_key,
      .long_enough = std::min(slot.limit.MostUs(head.tenant, next_turn), long_enough_us),
      .account = account,
      .turn = account.time,
      .next_turn = next_turn});
  tenants_.device.Begin(account);
  MoveToBatch(head, us, &**batch);
}

// Considers a few more jobs of the batch's key. False if there are no more, or the batch is full.
bool Ledger::Grow(GrowingBatch* batch) {
  for (int looks = 0; looks < kJobsAtOnce; ++looks) {
    const auto group = groups_.find(batch->key);
    if (group == groups_.end() || limits_.Reached(batch->tokens, batch->jobs.size())) return false;
    const auto next = group->second.jobs.upper_bound(batch->looked_at);
    if (next == group->second.jobs.end()) return false;
    const Job& job = *next->second;
    batch->looked_at = job.rank;
    if (CannotMeetDeadline(job, batch->now, batch->slot.slowdown)) {
      AnswerTooLate(job, batch->now);
      continue;
    }
    const FairShare::Account& account = TenantOf(job).device;
    if (&account != &batch->account && account.time > batch->next_turn) continue;
    if (job.cost.tokens > limits_.max_tokens - batch->tokens) continue;
    if ((batch->memory + job.memory).bytes() > batch->slot.free_bytes) continue;
    const double us = batch->us + job.predicted.own_us;
    const double spare_us = std::min(batch->spare_us, SpareUs(job, batch->now));
    if (us > batch->long_enough) continue;
    if (us * kPredictionMargin * batch->slot.slowdown > spare_us) continue;
    MoveToBatch(job, job.predicted.own_us, batch);
  }
  return true;
}

// Answers a job whose deadline has passed, or will pass before it could be answered. Between its
// removal and its answer the job is registered nowhere, so a failed allocation ends the process.
void Ledger::DoAnswerTooLate(const Job& job, TimePoint now) {
  Close(job);
  counters_.CancelledQueued();
  counters_.DeadlineMissed();
  const char* const why = Expired(job, now)
                              ? "the deadline passed while the request waited"
                              : "the request waited, and cannot be answered by its deadline any "
                                "more";
  const absl::Status status = MakeError(Reason::kDeadlineExceeded, why);
  Tenant& tenant = TenantOf(job);
  Post(tenant, Refusal(RemoveReady(job), status));
}

// Takes the lock for a few jobs at a time, so that other threads need not wait for a long batch.
// Requests that arrive meanwhile may join. Never inlined into a noexcept function: see
// admission.cc.
ABSL_ATTRIBUTE_NOINLINE
JobList Ledger::TakeBatch(bool preempts) {
  std::optional<GrowingBatch> batch;
  Search search;
  double middle = 0;
  bool grows = true;
  while (grows) {
    const Guard guard(*this);
    if (batch) {
      grows = Grow(&*batch);
      middle = (batch->turn + batch->account.time) / 2;
      continue;
    }
    const TimePoint now = clock_->Now();
    const DeviceSlot slot = DeviceSlotNow(preempts        ? DeviceSlot::Kind::kPreempting
                                          : runs_.empty() ? DeviceSlot::Kind::kIdle
                                                          : DeviceSlot::Kind::kPipelined,
                                          now);
    const Job* const head = FirstDue(now, slot, &search);
    if (head == nullptr) {
      if (search.done) return {};
    } else if (CannotMeetDeadline(*head, now, slot.slowdown)) {
      AnswerTooLate(*head, now);
    } else {
      StartBatch(*head, now, slot, &batch);
    }
  }
  for (const auto& job : batch->jobs) job->fair_midpoint = middle;
  return std::move(batch->jobs);
}

bool Ledger::MayLendTurn(const Job& job, TimePoint now) const {
  const bool sleeps = device_sleeps_until_ != TimePoint::min() && !turn_lent_;
  return sleeps && job.operation == Operation::kAttend && ready_ == 0 && runs_.empty() &&
         limits_.delay.count() == 0 && job.predicted.alone_us() <= kMaxLentUs &&
         !CannotMeetDeadline(job, now, runs_.Slowdown(now));
}

JobList Ledger::TakeAlone(const Job& job, TimePoint now) {
  std::optional<GrowingBatch> batch;
  StartBatch(job, now, DeviceSlotNow(DeviceSlot::Kind::kIdle, now), &batch);
  batch->jobs.front()->fair_midpoint = (batch->turn + batch->account.time) / 2;
  return std::move(batch->jobs);
}

JobList Ledger::NextBatch(bool wait, TimePoint until) noexcept {
  while (true) {
    JobList batch = TakeBatch(/*preempts=*/false);
    if (!batch.empty() || !wait) return batch;
    const Guard guard(*this);
    if (stopped_) return {};
    const TimePoint due = FirstDueAt();
    const TimePoint now = clock_->Now();
    if (due <= now) continue;  // it arrived in the meantime
    if (until <= now) return {};
    device_sleeps_until_ = std::min(due, until);
    clock_->WaitUntil(device_wakes_, mu_, device_sleeps_until_);
    device_sleeps_until_ = TimePoint::min();
    while (turn_lent_) device_wakes_.Wait(mu_);
  }
}

bool Ledger::HasPreemptor() noexcept {
  const TimePoint now = clock_->Now();
  Search search;
  while (!search.done) {
    MutexLock lock(mu_);
    if (ready_ == 0) return false;
    const DeviceSlot slot = DeviceSlotNow(DeviceSlot::Kind::kPreempting, now);
    if (slot.limit.closed()) return false;
    if (FirstDue(now, slot, &search) != nullptr) return true;
  }
  return false;
}

JobList Ledger::TakePreemptor() noexcept { return TakeBatch(/*preempts=*/true); }

}  // namespace castor

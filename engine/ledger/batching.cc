// Who runs when. A batch starts with the first request, in the order of service, that is due. Then
// others of its key join, by rank. So the batch skips incompatible requests in between, and
// compatible ones that are too large for the room left, in tokens or in the device's memory. Those
// that join may overtake others, so one does only as long as
//
// - the batch stays short: what a batch pays once, shared by more requests than that, is little;
// - its tenant would have its turn before the first request's tenant has another;
// - nobody in the batch is expected to miss a deadline because of it.
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

// A batch is long enough when what it pays once is at most this part of it. One that takes no
// longer than a moment may always grow: a device with many cores is not busy with less.
constexpr double kOncePart = 1.0 / 16;
constexpr double kMomentUs = 5000;
// Where much waits, longer batches pay less often, and delay nobody by more than this part of what
// waits anyway. Nobody but other tenants, who need not wait for all that: if they have had more
// than this share of the device of late, batches stay short.
constexpr double kWaitingPart = 1.0 / 4;
constexpr double kNobody = 0.01;
// Where several tenants wait, turns are shorter.
constexpr double kOncePartOfTurn = 1.0 / 4;
constexpr double kMomentOfTurnUs = 2000;

double SpareUs(const Job& job, TimePoint now) {
  return job.deadline ? Microseconds(now, *job.deadline) : std::numeric_limits<double>::infinity();
}

// Whether the job would be late even if it took less than predicted, by as much as predictions are
// off. By its price alone, if that is less: admission lets an idle device try whether what was
// learned is true.
bool IsHopeless(const Job& job, TimePoint now, double pace) {
  const double us = job.predicted.alone_us() / std::max(1.0, job.predicted.correction);
  return Expired(job, now) || SpareUs(job, now) * kPredictionMargin < pace * us;
}

}  // namespace

// ---- What waits.

// Never inlined into what is noexcept: see admission.cc.
ABSL_ATTRIBUTE_NOINLINE
TimePoint Ledger::Insert(std::unique_ptr<Job>&& job) {
  Group& group = groups_[job->batch_key];
  group.tokens += job->cost.tokens;
  std::unique_ptr<Job>& place = group.jobs[job->rank];
  place = std::move(job);
  ++ready_;
  return DueAt(group);
}

std::unique_ptr<Job> Ledger::Remove(const Job& job) {
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

// min() if a group is due already, max() if nothing waits.
TimePoint Ledger::FirstDueAt() const {
  if (ready_ > 0 && limits_.delay.count() == 0) return TimePoint::min();
  TimePoint first = TimePoint::max();
  for (const auto& [key, group] : groups_) first = std::min(first, DueAt(group));
  return first;
}

// ---- What the device can take.

Ledger::Opening Ledger::OpeningFor(Opening::Beside beside, TimePoint now) const {
  Opening opening{.beside = beside,
                  .pace = runs_.Pace(now),
                  .free_bytes = device_memory_.for_runs() - runs_.held_bytes()};
  if (beside == Opening::Beside::kHeldUp) opening.passage = runs_.MayPass(now);
  return opening;
}

// The first job in the order of service that is due, short enough and that the device has memory
// for.
const Job* Ledger::FirstDue(TimePoint now, const Opening& opening, Search* search) {
  tenants_.StartAnewIfFar();
  const bool passes = opening.beside == Opening::Beside::kHeldUp;
  int looks = Search::kLooks;
  const auto& order = tenants_.device.order();
  for (auto at = order.lower_bound(search->turn); at != order.end(); ++at) {
    const auto& [turn, tenant] = *at;
    if (turn != search->turn) *search = {.turn = turn};
    if (--looks < 0) return nullptr;
    const double most_us = opening.passage.MostUsOf(tenant->name);
    if (most_us <= 0 || !tenant->ready_us.AnyUpTo(most_us)) continue;
    for (auto next = tenant->line.upper_bound(search->rank); next != tenant->line.end(); ++next) {
      if (--looks < 0) return nullptr;
      search->rank = next->first;
      const Job* const job = next->second.ready;
      if (job == nullptr) continue;
      const double us = job->predicted.alone_us();
      if (us > most_us) continue;
      if (passes && !opening.HasMemoryFor(*job)) continue;
      const double end = tenant->device.time + us / tenant->device.weight;
      if (us > opening.passage.MostUs(tenant->name, end)) continue;  // it is not its turn
      if (limits_.delay.count() > 0 && DueAt(groups_.find(job->batch_key)->second) > now) continue;
      // One that waits for memory is not overtaken, save at checkpoints: those end.
      search->done = !opening.HasMemoryFor(*job);
      return search->done ? nullptr : job;
    }
  }
  search->done = true;
  return nullptr;
}

// ---- Batches.

// A batch as it grows. Its jobs are the engine thread's already.
struct Ledger::Growing {
  const Opening opening;
  const TimePoint now;
  const std::string key;
  double us = 0;
  double long_enough;  // microseconds
  double spare_us = std::numeric_limits<double>::infinity();
  int64_t tokens = 0;
  MemoryNeed memory = {};
  FairShare::Account& account;  // of the first job's tenant
  const double turn;
  const double next_turn;  // virtual
  Rank looked_at = {};     // up to here
  JobList jobs = {};

  void Take(const Job& job, double more_us) {
    us += more_us;
    spare_us = std::min(spare_us, SpareUs(job, now));
    tokens += job.cost.tokens;
    memory = memory + job.memory;
  }
};

void Ledger::Take(const Job& job, double us, Growing* batch) {
  tenants_.device.Charge(TenantOf(job).device, us);
  batch->Take(job, us);
  std::unique_ptr<Job>& place = batch->jobs.emplace_back();
  place = Remove(job);
  place->state = Job::State::kRunning;
  ForgetDeadline(*place);
  LeaveLine(place->reservation);
}

// The first is taken whatever its size: a request above the limit runs alone.
void Ledger::Begin(const Job& head, TimePoint now, const Opening& opening,
                   std::optional<Growing>* batch) {
  FairShare::Account& account = TenantOf(head).device;
  const bool turns = tenants_.device.order().size() > 1;
  const double once_us = head.predicted.batch_us;
  double pays_us = turns ? std::max(once_us / kOncePartOfTurn, kMomentOfTurnUs)
                         : std::max(once_us / kOncePart, kMomentUs);
  if (tenants_.ShareOfOthers(&TenantOf(head), now) < kNobody) {
    pays_us = std::max(pays_us, kWaitingPart * tenants_.waiting_us());
  }
  const double us = head.predicted.alone_us();
  const double next_turn = account.time + us / account.weight;
  batch->emplace(
      Growing{.opening = opening,
              .now = now,
              .key = head.batch_key,
              .long_enough = std::min(opening.passage.MostUs(head.tenant, next_turn), pays_us),
              .account = account,
              .turn = account.time,
              .next_turn = next_turn});
  tenants_.device.Begin(account);
  Take(head, us, &**batch);
}

// Looks at a few more jobs of the batch's key. False: at all of them, or the batch is full.
bool Ledger::Grow(Growing* batch) {
  for (int looks = 0; looks < kJobsAtOnce; ++looks) {
    const auto group = groups_.find(batch->key);
    if (group == groups_.end() || limits_.Reached(batch->tokens, batch->jobs.size())) return false;
    const auto next = group->second.jobs.upper_bound(batch->looked_at);
    if (next == group->second.jobs.end()) return false;
    const Job& job = *next->second;
    batch->looked_at = job.rank;
    if (IsHopeless(job, batch->now, batch->opening.pace)) {
      DropLate(job, batch->now);
      continue;
    }
    const FairShare::Account& account = TenantOf(job).device;
    if (&account != &batch->account && account.time > batch->next_turn) continue;
    if (job.cost.tokens > limits_.max_tokens - batch->tokens) continue;
    if ((batch->memory + job.memory).bytes() > batch->opening.free_bytes) continue;
    const double us = batch->us + job.predicted.own_us;
    const double spare_us = std::min(batch->spare_us, SpareUs(job, batch->now));
    if (us > batch->long_enough) continue;
    if (us * kPredictionMargin * batch->opening.pace > spare_us) continue;
    Take(job, job.predicted.own_us, batch);
  }
  return true;
}

// Those whose deadline has passed, or will before they could be answered, are answered instead. For
// a moment a job is in no place, so a failed allocation ends the process.
void Ledger::DoDropLate(const Job& job, TimePoint now) {
  Close(job);
  counters_.CancelledQueued();
  counters_.DeadlineMissed();
  const char* const why = Expired(job, now)
                              ? "the deadline passed while the request waited"
                              : "the request waited, and its deadline is too near to answer it in "
                                "time";
  const absl::Status status = MakeError(Reason::kDeadlineExceeded, why);
  Tenant& tenant = TenantOf(job);
  Post(tenant, Refusal(Remove(job), status));
}

// Takes the lock for a few jobs at a time, so that nobody waits while a long batch is taken out.
// Those that come meanwhile may join. Never inlined into what is noexcept: see admission.cc.
ABSL_ATTRIBUTE_NOINLINE
JobList Ledger::TakeBatch(bool passes) {
  std::optional<Growing> batch;
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
    const Opening opening = OpeningFor(passes          ? Opening::Beside::kHeldUp
                                       : runs_.empty() ? Opening::Beside::kNothing
                                                       : Opening::Beside::kLaunch,
                                       now);
    const Job* const head = FirstDue(now, opening, &search);
    if (head == nullptr) {
      if (search.done) return {};
    } else if (IsHopeless(*head, now, opening.pace)) {
      DropLate(*head, now);
    } else {
      Begin(*head, now, opening, &batch);
    }
  }
  for (const auto& job : batch->jobs) job->turn_middle = middle;
  return std::move(batch->jobs);
}

JobList Ledger::NextBatch(bool wait, TimePoint until) noexcept {
  while (true) {
    JobList batch = TakeBatch(/*passes=*/false);
    if (!batch.empty() || !wait) return batch;
    const Guard guard(*this);
    if (stopped_) return {};
    const TimePoint due = FirstDueAt();
    const TimePoint now = clock_->Now();
    if (due <= now) continue;  // it came a moment ago
    if (until <= now) return {};
    device_sleeps_until_ = std::min(due, until);
    clock_->WaitUntil(device_wakes_, mu_, device_sleeps_until_);
    device_sleeps_until_ = TimePoint::min();
  }
}

bool Ledger::HasPasser() noexcept {
  const TimePoint now = clock_->Now();
  Search search;
  while (!search.done) {
    MutexLock lock(mu_);
    if (ready_ == 0) return false;
    const Opening opening = OpeningFor(Opening::Beside::kHeldUp, now);
    if (opening.passage.closed()) return false;
    if (FirstDue(now, opening, &search) != nullptr) return true;
  }
  return false;
}

JobList Ledger::TakePasser() noexcept { return TakeBatch(/*passes=*/true); }

}  // namespace castor

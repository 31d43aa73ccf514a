#include "engine/ledger/ledger.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "engine/base/error.h"

namespace castor {
namespace {

// How many tenants, the first to be seen, have rows of their own in the statistics.
constexpr size_t kMaxTenantRows = 32;

absl::Status Cancelled() { return MakeError(Reason::kCancelled, "the request was cancelled"); }

absl::Status DeadlineExceeded(const std::string& meanwhile) {
  return MakeError(Reason::kDeadlineExceeded, "the deadline passed while the request " + meanwhile);
}

absl::Status Draining() { return MakeError(Reason::kDraining, "the engine is shutting down"); }

absl::Status DeviceLost() { return MakeError(Reason::kInternal, "the device has failed"); }

}  // namespace

Ledger::Ledger(LedgerOptions options, std::shared_ptr<Clock> clock, Counters& counters)
    : budgets_(options.budgets),
      clock_(std::move(clock)),
      counters_(counters),
      tokenizer_threads_(options.tokenizer_threads),
      completion_threads_(options.completion_threads),
      limits_(options.limits),
      tenants_(std::move(options.tenants)) {}

Ledger::~Ledger() = default;

void Ledger::UnlockAndWake() {
  const Wakes wakes = std::exchange(wakes_, {});
  mu_.Unlock();
  if (wakes.device) device_wakes_.NotifyOne();
  if (wakes.deadlines) deadline_wakes_.NotifyOne();
  for (int i = 0; i < wakes.tokenizers; ++i) tokenizer_wakes_.NotifyOne();
  for (int i = 0; i < wakes.completions; ++i) answer_wakes_.NotifyOne();
}

// ---- Reservations.

void Reservation::ResizeTo(int64_t bytes) noexcept {
  // A reservation without bytes may have outlived its tenant's record.
  if (ledger_ != nullptr && cost_.bytes > 0) ledger_->GiveBack(*this, {0, 0, bytes});
}

void Reservation::Release() noexcept {
  if (ledger_ == nullptr) return;
  ledger_->GiveBack(*this, {0, 0, 0});
  ledger_.reset();
}

void Ledger::GiveBack(Reservation& reservation, const Cost& kept) noexcept {
  const Guard guard(*this);
  LeaveLine(reservation);
  const Cost by = kept - reservation.cost_;
  reservation.cost_ = kept;
  // As above: without a change, the tenant's record may be gone.
  if (by.requests != 0 || by.tokens != 0 || by.bytes != 0) {
    Adjust(*reservation.tenant_, by, reservation.gathers_);
  }
}

void Ledger::Adjust(Tenant& tenant, const Cost& by, bool gathers) {
  (gathers ? gathered_ : in_use_) += by;
  tenants_.Adjust(tenant, by, gathers);
}

void Ledger::LeaveLine(Reservation& reservation) {
  if (!reservation.place_) return;
  tenants_.Leave(*reservation.tenant_, *reservation.place_);
  reservation.place_.reset();
}

// ---- Submit.

absl::Status Ledger::CheckOpen() const {
  if (failed_) return DeviceLost();
  if (draining_) return Draining();
  return absl::OkStatus();
}

absl::StatusOr<Ticket> Ledger::Enqueue(std::unique_ptr<Job> job, JobList* batch) noexcept {
  const TimePoint now = clock_->Now();
  const Guard guard(*this);
  if (auto status = CheckOpen(); !status.ok()) return status;
  Open(*job);
  const Ticket ticket = job->ticket;
  if (batch != nullptr && MayLendTurn(*job, now)) {
    turn_lent_ = true;
    const Job& ready = *job;
    MakeReady(std::move(job));
    *batch = TakeAlone(ready, now);
  } else if (batch != nullptr && !job->needs_run() && TenantOf(*job).to_answer.empty()) {
    CloseWithoutRun(*job);
    batch->push_back(std::move(job));
  } else {
    EndPreparing(std::move(job));
  }
  return ticket;
}

void Ledger::EndTurn() noexcept {
  const Guard guard(*this);
  turn_lent_ = false;
  wakes_.device = device_sleeps_until_ == TimePoint::min();
}

absl::StatusOr<Ticket> Ledger::Tokenize(std::unique_ptr<Job> job) noexcept {
  const Guard guard(*this);
  if (auto status = CheckOpen(); !status.ok()) return status;
  Open(*job);
  const Ticket ticket = job->ticket;
  PushToTokenize(std::move(job));
  ++wakes_.tokenizers;
  return ticket;
}

void Ledger::Cancel(Ticket ticket) noexcept {
  const Guard guard(*this);
  const auto found = open_.find(ticket);
  if (found == open_.end()) return;
  Job& job = *found->second;
  if (job.state == Job::State::kRunning) {
    job.cancelled = true;
    return;
  }
  counters_.CancelledQueued();
  Withdraw(job, Cancelled());
}

// Never inlined into a noexcept function: see admission.cc.
ABSL_ATTRIBUTE_NOINLINE
void Ledger::Open(Job& job) {
  open_.emplace(job.ticket, &job);
  ++unanswered_;
  if (!job.deadline) return;
  deadlines_.emplace(std::pair(*job.deadline, job.ticket), &job);
  if (*job.deadline >= deadline_sleeps_until_) return;
  deadline_sleeps_until_ = *job.deadline;
  wakes_.deadlines = true;
}

void Ledger::Close(const Job& job) {
  open_.erase(job.ticket);
  ForgetDeadline(job);
}

void Ledger::ForgetDeadline(const Job& job) {
  if (job.deadline) deadlines_.erase({*job.deadline, job.ticket});
}

// The job waits for a batch, unless it needs no run: then its answer is ready.
void Ledger::EndPreparing(std::unique_ptr<Job>&& job) {
  if (job->needs_run()) return PushReady(std::move(job));
  CloseWithoutRun(*job);
  Tenant& tenant = TenantOf(*job);
  Post(tenant, Success(std::move(job)));
}

void Ledger::CloseWithoutRun(Job& job) {
  const CacheUse& cache = std::get<EncodeWork>(job.work).cache;
  if (cache.found != nullptr) ++cache.counts->hits;
  job.queued = job.launched = clock_->Now();
  Close(job);
  tenants_.NeedsNoRun(TenantOf(job), job, job.queued);
  LeaveLine(job.reservation);
}

void Ledger::PushReady(std::unique_ptr<Job>&& job) {
  // The engine thread must look again if this batch is due before it would wake.
  const TimePoint due = MakeReady(std::move(job));
  if (due >= device_sleeps_until_) return;
  device_sleeps_until_ = due;
  wakes_.device = !turn_lent_;  // else EndTurn wakes it
}

TimePoint Ledger::MakeReady(std::unique_ptr<Job>&& job) {
  Reservation& reservation = job->reservation;
  Tenant& tenant = *reservation.tenant_;
  Adjust(tenant, job->cost - reservation.cost_);
  reservation.cost_ = job->cost;
  tenants_.SetReady(tenant, *job);
  job->state = Job::State::kReady;
  job->queued = clock_->Now();
  return InsertReady(std::move(job));
}

// ---- The engine thread.

Runs::Id Ledger::BeginRun(const JobList& jobs, bool preempts, bool is_probe) noexcept {
  return DoBeginRun(jobs, preempts, is_probe);
}

ABSL_ATTRIBUTE_NOINLINE
Runs::Id Ledger::DoBeginRun(const JobList& jobs, bool preempts, bool is_probe) {
  const MemoryNeed memory = MemoryOf(jobs);
  RunPlan plan{.predicted_us = is_probe ? 0 : PredictedUs(jobs),
               .tenant = jobs.front()->tenant,
               .fair_midpoint = jobs.front()->fair_midpoint,
               .preempts = preempts,
               .device_bytes = memory.bytes(),
               .activation_bytes = memory.activations};
  for (const auto& job : jobs) {
    plan.longest_us = std::max(plan.longest_us, job->predicted.alone_us());
    if (plan.tenant != job->tenant) plan.tenant.reset();
  }
  const TimePoint now = clock_->Now();
  const Guard guard(*this);
  return runs_.Begin(std::move(plan), now);
}

double Ledger::EndRun(Runs::Id run, bool completed) noexcept {
  const TimePoint now = clock_->Now();
  const Guard guard(*this);
  return runs_.End(run, now, completed, /*more=*/ready_ > 0);
}

void Ledger::ChargeActual(const JobList& jobs, double took_us, bool runs_again) noexcept {
  // A stall of the whole machine is not charged to the tenant that happened to run.
  const double predicted_us = PredictedUs(jobs);
  const double owed_us = std::min(took_us, Runs::kMaxSlowdown * predicted_us + kShortWhileUs) -
                         (runs_again ? 0 : predicted_us);
  double own_us = 0;
  for (const auto& job : jobs) own_us += job->predicted.own_us;
  const auto count = static_cast<double>(jobs.size());
  for (auto job = jobs.begin(); job != jobs.end();) {
    Tenant& tenant = TenantOf(**job);
    double share = 0;
    for (; job != jobs.end() && &TenantOf(**job) == &tenant; ++job) {
      share += own_us > 0 ? (*job)->predicted.own_us / own_us : 1 / count;
    }
    MutexLock lock(mu_);
    tenants_.device.Charge(tenant.device, owed_us * share);
    ChargeForStatistics(tenant.name, took_us * share);
  }
}

ABSL_ATTRIBUTE_NOINLINE
void Ledger::ChargeForStatistics(const std::string& tenant, double us) {
  const std::string& row = TenantOfQueue(tenant);
  const bool has_row = tenant_seconds_.contains(row) || tenant_seconds_.size() < kMaxTenantRows;
  tenant_seconds_[has_row ? row : "other"] += us * 1e-6;
}

void Ledger::CloseAll(const JobList& jobs) noexcept {
  const TimePoint now = clock_->Now();
  // The lock is taken once for each job, so that other threads need not wait for all of them.
  for (const auto& job : jobs) {
    MutexLock lock(mu_);
    Close(*job);
    if (job->cancelled) counters_.CancelledRunning();
  }
  counters_.Answered(jobs, now);  // before a caller can see its answer
}

void Ledger::AnswerAll(JobList jobs) noexcept {
  CloseAll(jobs);
  for (auto& job : jobs) {
    MutexLock lock(mu_);
    Tenant& tenant = TenantOf(*job);
    Post(tenant, Success(std::move(job)));
  }
  const Guard wakes(*this);
}

bool Ledger::AllAbandoned(const JobList& jobs) const noexcept {
  const TimePoint now = clock_->Now();
  MutexLock lock(mu_);
  return std::all_of(jobs.begin(), jobs.end(),
                     [now](const auto& job) { return job->cancelled || Expired(*job, now); });
}

void Ledger::AnswerAbandoned(JobList* jobs) noexcept {
  const TimePoint now = clock_->Now();
  JobList alive;
  for (auto& job : *jobs) {
    MutexLock lock(mu_);
    if (!job->cancelled && !Expired(*job, now)) {
      alive.push_back(std::move(job));
      continue;
    }
    Close(*job);
    counters_.CancelledRunning();
    if (!job->cancelled) counters_.DeadlineMissed();
    Tenant& tenant = TenantOf(*job);
    const absl::Status status = job->cancelled ? Cancelled() : DeadlineExceeded("ran");
    Post(tenant, Refusal(std::move(job), status));
  }
  const Guard wakes(*this);
  *jobs = std::move(alive);
}

void Ledger::FailAll() noexcept {
  const Guard guard(*this);
  failed_ = true;
  WithdrawAll(DeviceLost());
}

int64_t Ledger::free_device_bytes() const {
  MutexLock lock(mu_);
  return device_memory_.for_runs() - runs_.held_bytes();
}

// ---- Withdrawals.

void Ledger::DoWithdraw(Job& job, const absl::Status& status) {
  Close(job);
  Tenant& tenant = TenantOf(job);
  if (job.state == Job::State::kReady) return Post(tenant, Refusal(RemoveReady(job), status));
  std::unique_ptr<Job> held = RemoveToTokenize(job);
  // A tokenizer that has the job drops it later: only take its completion now.
  Post(tenant,
       held == nullptr ? Refusal(std::move(job.done), status) : Refusal(std::move(held), status));
}

void Ledger::WithdrawAll(const absl::Status& status) {
  std::vector<Job*> jobs;
  for (const auto& [ticket, job] : open_) {
    if (job->state != Job::State::kRunning) jobs.push_back(job);
  }
  for (Job* job : jobs) Withdraw(*job, status);
}

// ---- The deadline thread.

// Withdraws a few expired requests. False if there are no more.
bool Ledger::WithdrawExpired() {
  const TimePoint now = clock_->Now();
  for (int i = 0; i < kJobsAtOnce; ++i) {
    if (deadlines_.empty() || deadlines_.begin()->first.first > now) return false;
    counters_.CancelledQueued();
    counters_.DeadlineMissed();
    Withdraw(*deadlines_.begin()->second, DeadlineExceeded("waited"));
  }
  return true;
}

void Ledger::Expire() noexcept {
  bool more = true;
  while (more) {
    const Guard guard(*this);
    more = WithdrawExpired();
  }
}

void Ledger::ExpireUntilStopped() noexcept {
  while (true) {
    Expire();  // and wakes completion threads
    const Guard guard(*this);
    if (stopped_) return;
    if (deadline_sleeps_until_ <= clock_->Now()) {
      deadline_sleeps_until_ =
          deadlines_.empty() ? TimePoint::max() : deadlines_.begin()->first.first;
    }
    clock_->WaitUntil(deadline_wakes_, mu_, deadline_sleeps_until_);
  }
}

// ---- The owner.

void Ledger::SetTenants(Tenants::Terms terms) noexcept {
  Tenants::Terms before;  // freed outside the lock
  const Guard guard(*this);
  before = tenants_.SetTerms(std::move(terms));
}

void Ledger::StartDraining() noexcept {
  const Guard guard(*this);
  draining_ = true;
  limits_.delay = std::chrono::microseconds(0);
  wakes_.device = true;
}

bool Ledger::WaitUntilAnswered(TimePoint deadline) {
  MutexLock lock(mu_);
  while (unanswered_ > 0 && clock_->Now() < deadline) {
    clock_->WaitUntil(all_answered_, mu_, deadline);
  }
  return unanswered_ == 0;
}

void Ledger::RefuseWaiting() noexcept {
  const Guard guard(*this);
  WithdrawAll(Draining());
}

void Ledger::StopTokenizers() noexcept {
  {
    MutexLock lock(mu_);
    tokenizers_stopped_ = true;
  }
  tokenizer_wakes_.NotifyAll();
}

void Ledger::Stop() noexcept {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  device_wakes_.NotifyAll();
  deadline_wakes_.NotifyAll();
  answer_wakes_.NotifyAll();
}

LoadStats Ledger::load() const {
  const TimePoint now = clock_->Now();
  MutexLock lock(mu_);
  LoadStats load{.queued_requests = ready_,
                 .inflight_requests = in_use_.requests,
                 .inflight_tokens = in_use_.tokens,
                 .inflight_bytes = in_use_.bytes,
                 .max_requests = budgets_.most.requests,
                 .max_tokens = budgets_.most.tokens,
                 .max_bytes = budgets_.most.bytes,
                 .device_bytes = device_memory_.weights() + runs_.held_bytes(),
                 .max_device_bytes = device_memory_.most(),
                 .queued_seconds = tenants_.waiting_us() * 1e-6,
                 .max_queued_seconds = std::chrono::duration<double>(budgets_.queued_time).count()};
  if (!open_.empty()) {
    load.oldest_seconds = std::max(0.0, Microseconds(open_.begin()->second->received, now) * 1e-6);
  }
  for (const BudgetUse& part : UsesOf({0, 0, 0}, in_use_, budgets_.most)) {
    load.saturation = std::max(load.saturation,
                               static_cast<double>(part.used) / static_cast<double>(part.budget));
  }
  load.saturation =
      std::min(std::max(load.saturation, load.queued_seconds / load.max_queued_seconds), 1.0);
  return load;
}

std::pair<RunMemory, RunMemory> Ledger::run_memory() const {
  MutexLock lock(mu_);
  return {runs_.memory(), runs_.peak_memory()};
}

std::vector<std::pair<std::string, double>> Ledger::tenant_seconds() const {
  MutexLock lock(mu_);
  return {tenant_seconds_.begin(), tenant_seconds_.end()};
}

}  // namespace castor

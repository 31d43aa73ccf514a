#include "engine/ledger/ledger.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "engine/base/error.h"

namespace castor {
namespace {

// Slices of text, and answers, of so many bytes are large: some milliseconds until they are done.
constexpr int64_t kLargeText = 65'536;
constexpr int64_t kLargeAnswer = int64_t{4} << 20;

// What delivering an answer takes beside its bytes, in bytes.
constexpr int64_t kAnswerBytes = 16'384;

// A request makes way for those that come up to so much later, for each slice of its texts that has
// been tokenized. A slice is about a millisecond of work: of a busy thread, long texts keep a
// twentieth.
constexpr std::chrono::milliseconds kPerSlice{20};

// The first tenants that are seen have a row of their own in the statistics.
constexpr size_t kMostTenantRows = 32;

absl::Status Cancelled() { return MakeError(Reason::kCancelled, "the request was cancelled"); }

absl::Status DeadlineExceeded(const std::string& meanwhile) {
  return MakeError(Reason::kDeadlineExceeded, "the deadline passed while the request " + meanwhile);
}

absl::Status Draining() { return MakeError(Reason::kDraining, "the engine is shutting down"); }

absl::Status DeviceLost() { return MakeError(Reason::kInternal, "the device has failed"); }

Rank TokenizingRank(const Job& job) {
  return {job.rank.due + job.slices * kPerSlice, job.rank.sequence};
}

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

void Reservation::KeepOnly(int64_t bytes) noexcept {
  if (ledger_ != nullptr) ledger_->GiveBack(*this, {0, 0, std::min(bytes, cost_.bytes)});
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
  // Once it has given back everything, its tenant may have been forgotten.
  if (by.requests != 0 || by.tokens != 0 || by.bytes != 0) Adjust(*reservation.tenant_, by);
}

void Ledger::Adjust(Tenant& tenant, const Cost& by) {
  in_use_ += by;
  tenant.in_use += by;
}

void Ledger::LeaveLine(Reservation& reservation) {
  if (!reservation.place_) return;
  tenants_.Leave(*reservation.tenant_, *reservation.place_);
  reservation.place_.reset();
}

// ---- Submit.

absl::Status Ledger::CheckOpen() const {
  MutexLock lock(mu_);
  return CheckOpenLocked();
}

absl::Status Ledger::CheckOpenLocked() const {
  if (failed_) return DeviceLost();
  if (draining_) return Draining();
  return absl::OkStatus();
}

absl::StatusOr<Ticket> Ledger::Enqueue(std::unique_ptr<Job> job) noexcept {
  const Guard guard(*this);
  if (auto status = CheckOpenLocked(); !status.ok()) return status;
  Open(*job);
  const Ticket ticket = job->ticket;
  PushReady(std::move(job));
  return ticket;
}

absl::StatusOr<Ticket> Ledger::Tokenize(std::unique_ptr<Job> job) noexcept {
  const Guard guard(*this);
  if (auto status = CheckOpenLocked(); !status.ok()) return status;
  Open(*job);
  const Ticket ticket = job->ticket;
  PushToTokenize(std::move(job));
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

// Never inlined into what is noexcept: see admission.cc.
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

// ---- Tokenizer threads.

ABSL_ATTRIBUTE_NOINLINE
void Ledger::PushToTokenize(std::unique_ptr<Job>&& job) {
  Tenant& tenant = TenantOf(*job);
  job->state = Job::State::kPreparing;
  tenants_.tokenizing.Arrive(tenant.tokenizing);
  std::unique_ptr<Job>& place = tenant.to_tokenize[TokenizingRank(*job)];
  place = std::move(job);
  ++wakes_.tokenizers;
}

std::unique_ptr<Job> Ledger::NextToTokenize(AtHand* at_hand) noexcept {
  const Guard guard(*this);
  if (*at_hand == AtHand::kLarge) --large_texts_;
  *at_hand = AtHand::kNothing;
  while (!tokenizers_stopped_) {
    if (auto job = TakeToTokenize(at_hand)) return job;
    tokenizer_wakes_.Wait(mu_);
  }
  return nullptr;
}

std::unique_ptr<Job> Ledger::TakeToTokenize(AtHand* at_hand) {
  const bool any_size = large_texts_ < std::max(1, tokenizer_threads_ - 1);
  for (const auto& turn : tenants_.tokenizing.order()) {
    Tenant* const tenant = turn.second;
    auto& jobs = tenant->to_tokenize;
    const auto next = std::find_if(jobs.begin(), jobs.end(), [&](const auto& entry) {
      return any_size || entry.second->slice_bytes < kLargeText;
    });
    if (next == jobs.end()) continue;
    std::unique_ptr<Job> job = std::move(next->second);
    jobs.erase(next);
    ++job->slices;
    tenants_.tokenizing.Begin(tenant->tokenizing);
    tenants_.tokenizing.Charge(tenant->tokenizing, static_cast<double>(job->slice_bytes));
    if (jobs.empty()) tenants_.tokenizing.Leave(tenant->tokenizing);
    *at_hand = job->slice_bytes < kLargeText ? AtHand::kSmall : AtHand::kLarge;
    if (*at_hand == AtHand::kLarge) ++large_texts_;
    return job;
  }
  return nullptr;
}

bool Ledger::IsOpen(const Job& job) const {
  MutexLock lock(mu_);
  return open_.contains(job.ticket);
}

void Ledger::TokenizeMore(std::unique_ptr<Job> job) noexcept {
  const Guard guard(*this);
  if (open_.contains(job->ticket)) PushToTokenize(std::move(job));
}

void Ledger::Tokenized(std::unique_ptr<Job> job) noexcept {
  const Guard guard(*this);
  if (open_.contains(job->ticket)) PushReady(std::move(job));
}

void Ledger::Refuse(std::unique_ptr<Job> job, const absl::Status& status) noexcept {
  const Guard guard(*this);
  if (!open_.contains(job->ticket)) return;
  Close(*job);
  Tenant& tenant = TenantOf(*job);
  Post(tenant, Refusal(std::move(job), status));
}

void Ledger::PushReady(std::unique_ptr<Job>&& job) {
  Reservation& reservation = job->reservation;
  Tenant& tenant = *reservation.tenant_;
  Adjust(tenant, job->cost - reservation.cost_);
  reservation.cost_ = job->cost;
  tenants_.AdjustTime(tenant, *reservation.place_, job->predicted);
  job->state = Job::State::kReady;
  job->queued = clock_->Now();
  Insert(std::move(job));
  // A sleeper must look again if a batch is due earlier, or may be.
  const TimePoint due = FirstDueAt();
  if (due >= device_sleeps_until_) return;
  device_sleeps_until_ = due;
  wakes_.device = true;
}

// ---- The engine thread.

Runs::Id Ledger::BeginRun(const JobList& jobs, bool passes, bool is_probe) noexcept {
  return DoBeginRun(jobs, passes, is_probe);
}

ABSL_ATTRIBUTE_NOINLINE
Runs::Id Ledger::DoBeginRun(const JobList& jobs, bool passes, bool is_probe) {
  const MemoryNeed memory = MemoryOf(jobs);
  RunPlan plan{.predicted_us = is_probe ? 0 : PredictedUs(jobs),
               .tenant = jobs.front()->tenant,
               .turn_middle = jobs.front()->turn_middle,
               .passes = passes,
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

void Ledger::Settle(const JobList& jobs, double took_us, bool runs_again) noexcept {
  // A machine that stood still says nothing of who was on it.
  const double predicted_us = PredictedUs(jobs);
  const double owed_us = std::min(took_us, Runs::kMostPace * predicted_us + kShortWhileUs) -
                         (runs_again ? 0 : predicted_us);
  double own_us = 0;
  for (const auto& job : jobs) own_us += job->predicted.own_us;
  const auto count = static_cast<double>(jobs.size());
  const Guard guard(*this);
  for (const auto& job : jobs) {
    const double share = own_us > 0 ? job->predicted.own_us / own_us : 1 / count;
    tenants_.device.Charge(TenantOf(*job).device, owed_us * share);
    ChargeForStatistics(job->tenant, took_us / count);
  }
}

ABSL_ATTRIBUTE_NOINLINE
void Ledger::ChargeForStatistics(const std::string& tenant, double us) {
  const bool has_row = tenant_seconds_.contains(tenant) || tenant_seconds_.size() < kMostTenantRows;
  tenant_seconds_[has_row ? tenant : "other"] += us * 1e-6;
}

void Ledger::AnswerAll(JobList jobs) noexcept {
  const TimePoint now = clock_->Now();
  const Guard guard(*this);
  for (const auto& job : jobs) {
    Close(*job);
    if (job->cancelled) counters_.CancelledRunning();
  }
  counters_.Answered(jobs, now);  // before a caller can see it
  for (auto& job : jobs) {
    Tenant& tenant = TenantOf(*job);
    Post(tenant, Success(std::move(job)));
  }
}

bool Ledger::AllDead(const JobList& jobs) const noexcept {
  const TimePoint now = clock_->Now();
  MutexLock lock(mu_);
  return std::all_of(jobs.begin(), jobs.end(),
                     [now](const auto& job) { return job->cancelled || Expired(*job, now); });
}

void Ledger::DropDead(JobList* jobs) noexcept {
  const TimePoint now = clock_->Now();
  const Guard guard(*this);
  JobList alive;
  for (auto& job : *jobs) {
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

// ---- Answers.

ABSL_ATTRIBUTE_NOINLINE
void Ledger::DoPost(Tenant& tenant, Answer&& answer) {
  tenants_.answering.Arrive(tenant.answering);
  tenant.to_answer.push_back(std::move(answer));
  if (wakes_.completions < idle_completions_) ++wakes_.completions;
}

bool Ledger::NextAnswer(bool wait, AtHand* at_hand, Answer* answer) noexcept {
  const Guard guard(*this);
  if (*at_hand == AtHand::kLarge) --large_answers_;
  if (*at_hand != AtHand::kNothing && --unanswered_ == 0) all_answered_.NotifyAll();
  *at_hand = AtHand::kNothing;
  while (!TakeAnswer(at_hand, answer)) {
    if (stopped_ && tenants_.answering.order().empty()) {
      answer_wakes_.NotifyAll();  // whoever waited for a large one to be done
      return false;
    }
    if (!wait) return false;
    ++idle_completions_;
    answer_wakes_.Wait(mu_);
    --idle_completions_;
  }
  return true;
}

bool Ledger::TakeAnswer(AtHand* at_hand, Answer* answer) {
  const bool any_size = large_answers_ < std::max(1, completion_threads_ - 1);
  for (const auto& turn : tenants_.answering.order()) {
    Tenant* const tenant = turn.second;
    auto& answers = tenant->to_answer;
    const auto next = std::find_if(answers.begin(), answers.end(), [&](const Answer& answer) {
      return any_size || answer.bytes < kLargeAnswer;
    });
    if (next == answers.end()) continue;
    *answer = std::move(*next);
    answers.erase(next);
    tenants_.answering.Begin(tenant->answering);
    tenants_.answering.Charge(tenant->answering, static_cast<double>(answer->bytes + kAnswerBytes));
    if (answers.empty()) tenants_.answering.Leave(tenant->answering);
    *at_hand = answer->bytes < kLargeAnswer ? AtHand::kSmall : AtHand::kLarge;
    if (*at_hand == AtHand::kLarge) ++large_answers_;
    return true;
  }
  return false;
}

void Ledger::DoWithdraw(Job& job, const absl::Status& status) {
  Close(job);
  Tenant& tenant = TenantOf(job);
  if (job.state == Job::State::kReady) return Post(tenant, Refusal(Remove(job), status));
  const auto waits = tenant.to_tokenize.find(TokenizingRank(job));
  if (waits == tenant.to_tokenize.end()) {
    // A tokenizer has it, and drops it later; only the completion is taken now.
    return Post(tenant, Refusal(std::move(job.done), status));
  }
  std::unique_ptr<Job> held = std::move(waits->second);
  tenant.to_tokenize.erase(waits);
  if (tenant.to_tokenize.empty()) tenants_.tokenizing.Leave(tenant.tokenizing);
  Post(tenant, Refusal(std::move(held), status));
}

void Ledger::WithdrawAll(const absl::Status& status) {
  std::vector<Job*> jobs;
  for (const auto& [ticket, job] : open_) {
    if (job->state != Job::State::kRunning) jobs.push_back(job);
  }
  for (Job* job : jobs) Withdraw(*job, status);
}

// ---- The deadline thread.

void Ledger::WithdrawExpired() {
  const TimePoint now = clock_->Now();
  while (!deadlines_.empty() && deadlines_.begin()->first.first <= now) {
    counters_.CancelledQueued();
    counters_.DeadlineMissed();
    Withdraw(*deadlines_.begin()->second, DeadlineExceeded("waited"));
  }
}

void Ledger::Expire() noexcept {
  const Guard guard(*this);
  WithdrawExpired();
}

void Ledger::ExpireUntilStopped() noexcept {
  while (true) {
    const Guard guard(*this);
    if (stopped_) return;
    WithdrawExpired();
    if (wakes_.completions > 0) continue;  // wakes them first
    deadline_sleeps_until_ =
        deadlines_.empty() ? TimePoint::max() : deadlines_.begin()->first.first;
    clock_->WaitUntil(deadline_wakes_, mu_, deadline_sleeps_until_);
    deadline_sleeps_until_ = TimePoint::min();
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

LedgerLoad Ledger::load() const {
  MutexLock lock(mu_);
  LedgerLoad load{.in_use = in_use_,
                  .ready = ready_,
                  .waiting_us = tenants_.waiting_us(),
                  .held_bytes = runs_.held_bytes(),
                  .runs = runs_.memory(),
                  .runs_peak = runs_.peak_memory()};
  if (!open_.empty()) load.oldest = open_.begin()->second->received;
  for (const BudgetPart& part : PartsOf({0, 0, 0}, in_use_, budgets_.most)) {
    load.saturation = std::max(load.saturation,
                               static_cast<double>(part.used) / static_cast<double>(part.budget));
  }
  const auto queued_us = static_cast<double>(budgets_.queued_time.count());
  load.saturation = std::min(std::max(load.saturation, load.waiting_us / queued_us), 1.0);
  return load;
}

std::vector<std::pair<std::string, double>> Ledger::tenant_seconds() const {
  MutexLock lock(mu_);
  return {tenant_seconds_.begin(), tenant_seconds_.end()};
}

}  // namespace castor

#include "engine/scheduling/scheduler.h"

#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/scheduling/batcher.h"

namespace castor {
namespace {

absl::Status Cancelled() { return MakeError(Reason::kCancelled, "the request was cancelled"); }

absl::Status DeadlineExceeded(const std::string& meanwhile = "waited") {
  return MakeError(Reason::kDeadlineExceeded, "the deadline passed while the request " + meanwhile);
}

absl::Status CannotBeInTime() {
  return MakeError(Reason::kDeadlineExceeded,
                   "the request waited, and its deadline is too near to answer it in time");
}

absl::Status Draining() { return MakeError(Reason::kDraining, "the engine is shutting down"); }

absl::Status DeviceLost() { return MakeError(Reason::kInternal, "the device has failed"); }

}  // namespace

Scheduler::Scheduler(BatchLimits limits, TenantTablePtr tenants, Clock& clock,
                     CompletionPool& completions, Outstanding& outstanding, Counters& counters)
    : clock_(clock),
      completions_(completions),
      outstanding_(outstanding),
      counters_(counters),
      queue_(limits, std::move(tenants)) {}

// ---- Submit and the tokenizer pool.

absl::Status Scheduler::CheckOpen() const {
  MutexLock lock(mu_);
  return CheckOpenLocked();
}

absl::StatusOr<Ticket> Scheduler::Add(std::unique_ptr<Job> job) noexcept {
  Ticket ticket;
  bool wake_device;
  bool wake_deadlines;
  {
    MutexLock lock(mu_);
    if (auto status = CheckOpenLocked(); !status.ok()) return status;
    wake_deadlines = Register(*job);
    ticket = job->ticket;
    wake_device = PushWaiting(std::move(job));
  }
  if (wake_device) device_wakes_.NotifyOne();
  if (wake_deadlines) deadline_wakes_.NotifyOne();
  return ticket;
}

absl::StatusOr<Ticket> Scheduler::Open(Job& job) noexcept {
  bool wake_deadlines;
  {
    MutexLock lock(mu_);
    if (auto status = CheckOpenLocked(); !status.ok()) return status;
    wake_deadlines = Register(job);
    job.phase = Job::Phase::kTokenizing;
  }
  if (wake_deadlines) deadline_wakes_.NotifyOne();
  return job.ticket;
}

bool Scheduler::IsOpen(const Job& job) const {
  MutexLock lock(mu_);
  return open_.contains(job.ticket);
}

void Scheduler::Tokenized(std::unique_ptr<Job> job) noexcept {
  bool wake_device;
  {
    MutexLock lock(mu_);
    if (!open_.contains(job->ticket)) return;
    wake_device = PushWaiting(std::move(job));
  }
  if (wake_device) device_wakes_.NotifyOne();
}

void Scheduler::Refuse(std::unique_ptr<Job> job, const absl::Status& status) noexcept {
  {
    MutexLock lock(mu_);
    if (!open_.contains(job->ticket)) return;
    Unregister(*job);
  }
  std::vector<Answer> answers;
  answers.push_back(Refusal(std::move(job), status));
  completions_.Post(std::move(answers));
}

void Scheduler::Cancel(Ticket ticket) noexcept {
  std::vector<Answer> answers;
  {
    MutexLock lock(mu_);
    const auto found = open_.find(ticket);
    if (found == open_.end()) return;
    Job& job = *found->second;
    if (job.phase == Job::Phase::kRunning) {
      job.cancelled = true;
      return;
    }
    answers.push_back(Withdraw(job, Cancelled()));
  }
  counters_.CancelledQueued();
  completions_.Post(std::move(answers));
}

// ---- The engine thread.

JobList Scheduler::TakeBatch(bool wait, const std::function<Opening(TimePoint)>& opening) noexcept {
  while (true) {
    std::vector<Answer> expired;
    JobList batch;
    {
      MutexLock lock(mu_);
      while (!stopped_) {
        const TimePoint due = queue_.DueAt();
        const TimePoint now = clock_.Now();
        if (due <= now) {
          batch = NextBatch(now, opening(now), &expired);
          break;
        }
        if (!wait) break;
        device_sleeps_until_ = due;
        clock_.WaitUntil(device_wakes_, mu_, due);
        device_sleeps_until_ = TimePoint::min();
      }
      if (stopped_) wait = false;
    }
    for (const auto& job : batch) job->reservation.LeaveQueue();
    const bool found_only_expired = batch.empty() && !expired.empty();
    completions_.Post(std::move(expired));
    if (!batch.empty() || (!wait && !found_only_expired)) return batch;
  }
}

bool Scheduler::HasDue(const Opening& opening) noexcept {
  const TimePoint now = clock_.Now();
  MutexLock lock(mu_);
  return queue_.FirstDue(now, opening) != nullptr;
}

void Scheduler::Settle(const JobList& jobs, double us) noexcept {
  double own_us = 0;
  for (const auto& job : jobs) own_us += job->predicted.own_us;
  MutexLock lock(mu_);
  for (const auto& job : jobs) {
    const double share =
        own_us > 0 ? job->predicted.own_us / own_us : 1 / static_cast<double>(jobs.size());
    queue_.Settle(job->tenant, us * share);
  }
}

void Scheduler::Finish(const JobList& jobs) noexcept {
  MutexLock lock(mu_);
  for (const auto& job : jobs) {
    Unregister(*job);
    if (job->cancelled) counters_.CancelledRunning();
  }
}

bool Scheduler::AllDead(const JobList& jobs) const noexcept {
  const TimePoint now = clock_.Now();
  MutexLock lock(mu_);
  for (const auto& job : jobs) {
    if (!job->cancelled && !Expired(*job, now)) return false;
  }
  return true;
}

void Scheduler::DropDead(JobList* jobs) noexcept {
  const TimePoint now = clock_.Now();
  std::vector<Answer> answers;
  {
    MutexLock lock(mu_);
    JobList alive;
    for (auto& job : *jobs) {
      if (!job->cancelled && !Expired(*job, now)) {
        alive.push_back(std::move(job));
        continue;
      }
      Unregister(*job);
      counters_.CancelledRunning();
      const bool cancelled = job->cancelled;
      if (!cancelled) counters_.DeadlineMissed();
      answers.push_back(Refusal(std::move(job), cancelled ? Cancelled() : DeadlineExceeded("ran")));
    }
    *jobs = std::move(alive);
  }
  completions_.Post(std::move(answers));
}

void Scheduler::FailAll() noexcept {
  std::vector<Answer> answers;
  {
    MutexLock lock(mu_);
    failed_ = true;
    answers = WithdrawAll(DeviceLost());
  }
  completions_.Post(std::move(answers));
}

// ---- The deadline thread.

void Scheduler::ExpireUntilStopped() noexcept {
  while (true) {
    std::vector<Answer> expired;
    {
      MutexLock lock(mu_);
      while (true) {
        if (stopped_) return;
        expired = WithdrawExpired(clock_.Now());
        if (!expired.empty()) break;
        deadline_sleeps_until_ =
            deadlines_.empty() ? TimePoint::max() : deadlines_.begin()->first.first;
        clock_.WaitUntil(deadline_wakes_, mu_, deadline_sleeps_until_);
        deadline_sleeps_until_ = TimePoint::min();
      }
    }
    completions_.Post(std::move(expired));
  }
}

// ---- The owner.

void Scheduler::StartDraining() noexcept {
  {
    MutexLock lock(mu_);
    draining_ = true;
    queue_.EndDelay();
  }
  device_wakes_.NotifyOne();
}

void Scheduler::RefuseWaiting() noexcept {
  std::vector<Answer> answers;
  {
    MutexLock lock(mu_);
    answers = WithdrawAll(Draining());
  }
  completions_.Post(std::move(answers));
}

void Scheduler::Stop() noexcept {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  device_wakes_.NotifyOne();
  deadline_wakes_.NotifyOne();
}

int64_t Scheduler::waiting() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(queue_.size());
}

TimePoint Scheduler::oldest() const {
  MutexLock lock(mu_);
  return open_.empty() ? TimePoint::max() : open_.begin()->second->received;
}

// ---- Under the lock.

absl::Status Scheduler::CheckOpenLocked() const {
  if (failed_) return DeviceLost();
  if (draining_) return Draining();
  return absl::OkStatus();
}

bool Scheduler::Register(Job& job) {
  job.rank = job.reservation.rank();
  job.ticket = job.rank.sequence;
  spare_open_.Insert(open_, job.ticket, &job);
  outstanding_.Add();
  if (!job.deadline) return false;
  spare_deadlines_.Insert(deadlines_, std::pair(*job.deadline, job.ticket), &job);
  if (*job.deadline >= deadline_sleeps_until_) return false;
  deadline_sleeps_until_ = *job.deadline;
  return true;
}

bool Scheduler::PushWaiting(std::unique_ptr<Job> job) {
  job->phase = Job::Phase::kWaiting;
  job->queued = clock_.Now();
  queue_.Push(std::move(job));
  // A sleeper must look again if a batch is due earlier, or may be.
  const TimePoint due = queue_.DueAt();
  if (due >= device_sleeps_until_) return false;
  device_sleeps_until_ = due;
  return true;
}

void Scheduler::Unregister(const Job& job) {
  const auto open = open_.find(job.ticket);
  if (open != open_.end()) spare_open_.Take(open_, open);
  ForgetDeadline(job);
}

void Scheduler::ForgetDeadline(const Job& job) {
  if (!job.deadline) return;
  const auto at = deadlines_.find({*job.deadline, job.ticket});
  if (at != deadlines_.end()) spare_deadlines_.Take(deadlines_, at);
}

Answer Scheduler::Withdraw(Job& job, const absl::Status& status) {
  Unregister(job);
  if (job.phase == Job::Phase::kWaiting) return Refusal(queue_.Remove(job), status);
  // Its tokenizer still holds it and drops it later; only the completion is taken now.
  return Refusal(job.tenant, std::move(job.done), status);
}

std::vector<Answer> Scheduler::WithdrawAll(const absl::Status& status) {
  std::vector<Job*> jobs;
  for (const auto& [ticket, job] : open_) {
    if (job->phase != Job::Phase::kRunning) jobs.push_back(job);
  }
  std::vector<Answer> answers;
  for (Job* job : jobs) answers.push_back(Withdraw(*job, status));
  return answers;
}

std::vector<Answer> Scheduler::WithdrawExpired(TimePoint now) {
  std::vector<Answer> answers;
  while (!deadlines_.empty() && deadlines_.begin()->first.first <= now) {
    answers.push_back(Withdraw(*deadlines_.begin()->second, DeadlineExceeded()));
    counters_.CancelledQueued();
    counters_.DeadlineMissed();
  }
  return answers;
}

JobList Scheduler::NextBatch(TimePoint now, const Opening& opening, std::vector<Answer>* expired) {
  JobList dead;
  JobList batch = FormBatch(queue_, now, &dead, opening);
  for (auto& job : dead) {
    Unregister(*job);
    counters_.CancelledQueued();
    counters_.DeadlineMissed();
    const bool passed = Expired(*job, now);
    expired->push_back(Refusal(std::move(job), passed ? DeadlineExceeded() : CannotBeInTime()));
  }
  for (auto& job : batch) {
    job->phase = Job::Phase::kRunning;
    ForgetDeadline(*job);
  }
  return batch;
}

}  // namespace castor

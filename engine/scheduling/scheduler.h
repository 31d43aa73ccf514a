// The meeting point of all threads: which requests are open, which of them wait, and who may answer
// them.
//
// Exactly once: a request is answered by whoever takes its ticket out of the table of open
// requests, under the lock. Cancelling, expiring, draining, a dead device and a finished batch all
// do that, so only one of them wins.
//
// All methods may be called from any thread, except those marked. Jobs are handed to the completion
// pool outside the lock.
//
// Functions that change the bookkeeping are noexcept. Without memory for a node of a table, a
// request could stay registered and never be answered, so the process ends instead
// (engine/DESIGN.md, "When things fail").
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/base/spare_nodes.h"
#include "engine/jobs/job.h"
#include "engine/scheduling/batch_limits.h"
#include "engine/scheduling/batcher.h"
#include "engine/scheduling/completion_pool.h"
#include "engine/scheduling/counters.h"
#include "engine/scheduling/outstanding.h"
#include "engine/scheduling/queue.h"

namespace castor {

class Scheduler {
 public:
  // All references must outlive the object.
  Scheduler(BatchLimits limits, TenantTablePtr tenants, Clock& clock, CompletionPool& completions,
            Outstanding& outstanding, Counters& counters);

  // ---- Submit and the tokenizer pool.

  // Jobs come with their reservation, whose rank they keep.

  // OK if jobs are accepted, else DRAINING or INTERNAL.
  absl::Status CheckOpen() const;

  // Queues a job that is ready to run. DRAINING or INTERNAL when no more are accepted; the job is
  // then dropped with its completion uncalled.
  absl::StatusOr<Ticket> Add(std::unique_ptr<Job> job) noexcept;

  // Opens a job that must be tokenized first. The caller keeps it, and hands it back through
  // Tokenized or Refuse. Errors as for Add.
  absl::StatusOr<Ticket> Open(Job& job) noexcept;

  // Whether the job is still unanswered.
  bool IsOpen(const Job& job) const;

  // Queues a job that was opened, or drops it when it has been answered in the meantime.
  void Tokenized(std::unique_ptr<Job> job) noexcept;

  // Answers an opened or running job with an error, unless it has been answered in the meantime.
  void Refuse(std::unique_ptr<Job> job, const absl::Status& status) noexcept;

  // Answers a request that has not started with CANCELLED; marks one that is running.
  void Cancel(Ticket ticket) noexcept;

  // ---- The engine thread.

  // The next batch. With `wait`, blocks until one is due; the result is empty only after Stop.
  // Without `wait`, the result is empty if none is due now that suits the opening.
  JobList TakeBatch(bool wait, const std::function<Opening(TimePoint now)>& opening) noexcept;

  // Whether a batch is due that suits the opening.
  bool HasDue(const Opening& opening) noexcept;

  // A batch took `us` of the device that its jobs' tenants were not charged with.
  void Settle(const JobList& jobs, double us) noexcept;

  // Closes jobs of a batch that was executed: from here on they cannot be cancelled.
  void Finish(const JobList& jobs) noexcept;

  // Whether all of these running jobs were cancelled or have expired. Requires at least one.
  bool AllDead(const JobList& jobs) const noexcept;

  // For a batch that failed, was ended or must run again: answers and removes the jobs that were
  // cancelled or have expired.
  void DropDead(JobList* jobs) noexcept;

  // The device is lost: answers everything that waits with INTERNAL, and refuses new jobs with it.
  void FailAll() noexcept;

  // ---- The deadline thread: answers waiting requests as their deadlines pass, until Stop.
  void ExpireUntilStopped() noexcept;

  // ---- The owner.

  // Refuses new jobs from now on; waiting ones run without the batch delay.
  void StartDraining() noexcept;

  // Answers everything that still waits with DRAINING.
  void RefuseWaiting() noexcept;

  // Lets TakeBatch and ExpireUntilStopped return. Requires that nothing is open.
  void Stop() noexcept;

  int64_t waiting() const;

  // When the oldest request that is not answered yet arrived; max() if there is none.
  TimePoint oldest() const;

 private:
  absl::Status CheckOpenLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the job its ticket and its rank. Returns whether the deadline thread must be woken.
  bool Register(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether the engine thread must be woken.
  bool PushWaiting(std::unique_ptr<Job> job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unregister(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetDeadline(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Closes a job that waits or is being tokenized.
  Answer Withdraw(Job& job, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<Answer> WithdrawAll(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<Answer> WithdrawExpired(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  JobList NextBatch(TimePoint now, const Opening& opening, std::vector<Answer>* expired)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Clock& clock_;
  CompletionPool& completions_;
  Outstanding& outstanding_;
  Counters& counters_;

  mutable Mutex mu_;
  CondVar device_wakes_;
  CondVar deadline_wakes_;
  Queue queue_ ABSL_GUARDED_BY(mu_);
  using OpenJobs = std::map<Ticket, Job*>;
  OpenJobs open_ ABSL_GUARDED_BY(mu_);  // in order of arrival
  SpareNodes<OpenJobs> spare_open_ ABSL_GUARDED_BY(mu_);
  // Jobs that wait or are being tokenized, by their deadlines.
  using Deadlines = std::map<std::pair<TimePoint, Ticket>, Job*>;
  Deadlines deadlines_ ABSL_GUARDED_BY(mu_);
  SpareNodes<Deadlines> spare_deadlines_ ABSL_GUARDED_BY(mu_);
  // When the engine thread will wake; min() while it is awake, or has been woken. Avoids needless
  // wake-ups.
  TimePoint device_sleeps_until_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  // When the deadline thread will wake; min() while it is awake. It may then find nothing to do:
  // that is cheaper than waking it for every request that ends.
  TimePoint deadline_sleeps_until_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace castor

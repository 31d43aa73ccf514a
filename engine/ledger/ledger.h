// The ledger: everything that the engine has admitted and not yet answered, in the order of
// service, behind one lock. Admission, batches, deadlines, cancellation, drains, fair shares and
// statistics are questions to it.
//
// A job passes through these states; whoever has it is in parentheses:
//
//   admitted    it has its share of the budgets and its place in the order (Submit)
//   preparing   its texts wait to be tokenized (the ledger), or are (a tokenizer thread)
//   ready       it waits for a batch (the ledger)
//   running     (the engine thread)
//   answered    its answer waits (the ledger), or is delivered (a completion thread)
//
// Exactly once: a request is answered by whoever takes its ticket out of the table of open
// requests, under the lock. Cancelling, expiring, draining, a dead device and a finished batch all
// do that, so only one of them wins.
//
// All methods may be called from any thread, except those marked. Functions that change the
// bookkeeping are noexcept: without memory for a node of a table, a request could stay registered
// and never be answered, so the process ends instead (engine/DESIGN.md, "When things fail").
//
// ledger.cc has the life of a request, admission.cc who may come in, batching.cc who runs when,
// pools.cc what tokenizer and completion threads take.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/ledger/budgets.h"
#include "engine/ledger/counters.h"
#include "engine/ledger/device_memory.h"
#include "engine/ledger/job.h"
#include "engine/ledger/runs.h"
#include "engine/ledger/tenants.h"

namespace castor {

struct LedgerOptions {
  Budgets budgets;
  BatchLimits limits;
  Tenants::Terms tenants = {};
  int tokenizer_threads = 1;
  int completion_threads = 1;
};

// Owned by shared_ptr: reservations keep it alive.
class Ledger : public std::enable_shared_from_this<Ledger> {
 public:
  // `counters` must outlive all but the last reservations.
  Ledger(LedgerOptions options, std::shared_ptr<Clock> clock, Counters& counters);
  ~Ledger();

  // ---- Submit.

  // TOO_LARGE when `cost` alone exceeds a budget, or a quota of its tenant; when so much of the
  // device's memory could never be had.
  absl::Status CheckAlone(const Cost& cost, const std::string& tenant) const;
  absl::Status CheckMemory(const MemoryNeed& memory) const;

  // Checks both, and the job's predicted time; then takes its share of the budgets, and gives it
  // its ticket and its place in the order.
  //
  // DRAINING or INTERNAL when no more are accepted. TOO_LARGE also when the request alone would
  // take longer than any may. DEADLINE_EXCEEDED when its deadline is expected to pass before it
  // could be answered. QUEUE_FULL when its tenant has used up a quota, when it does not fit next to
  // what is admitted, would wait for too long, or would make others late that were admitted before.
  // The last two bring a hint when to retry, if that may help.
  absl::Status Admit(Job& job);

  // Engine::Reserve.
  absl::StatusOr<std::shared_ptr<void>> Reserve(const std::string& name, int64_t bytes);

  // Takes a job that was admitted: one that is ready to run, whose cost and time may have become
  // known since, or one that must be tokenized first. An admitted request is not refused for being
  // larger than it was estimated. DRAINING or INTERNAL when no more are accepted; the job is then
  // dropped with its completion uncalled.
  absl::StatusOr<Ticket> Enqueue(std::unique_ptr<Job> job) noexcept;
  absl::StatusOr<Ticket> Tokenize(std::unique_ptr<Job> job) noexcept;

  // Answers a request that has not started with CANCELLED; marks one that is running.
  void Cancel(Ticket ticket) noexcept;

  // ---- Tokenizer threads.

  // What a thread is busy with. What is large takes a while, and never occupies all threads of
  // several.
  enum class AtHand { kNothing, kSmall, kLarge };

  // Waits for the next job to go on with. `at_hand` is what the thread has just done, and becomes
  // what it does next. Null after StopTokenizers. In the order of service, but a request makes way
  // for others after each slice of its texts, so that one with many or long texts does not hold
  // them up; between tenants, fair by bytes of text.
  std::unique_ptr<Job> NextToTokenize(AtHand* at_hand) noexcept;

  // Whether the job is still unanswered.
  bool IsOpen(const Job& job) const;

  // Hands a job back: more of its texts are to be tokenized; or it is ready, with its true cost,
  // time and memory. Drops it if it has been answered in the meantime.
  void TokenizeMore(std::unique_ptr<Job> job) noexcept;
  void Tokenized(std::unique_ptr<Job> job) noexcept;

  // Answers a job with an error, unless it has been answered in the meantime. Also for the engine
  // thread.
  void Refuse(std::unique_ptr<Job> job, const absl::Status& status) noexcept;

  // ---- The engine thread.

  // The next batch: anything if nothing runs, else what fits beside it. With `wait`, blocks until
  // one is due; the result is then empty only after Stop, or when it is `until`.
  JobList NextBatch(bool wait, TimePoint until = TimePoint::max()) noexcept;

  // At a checkpoint of a run: whether a batch is due that may pass it, and that batch. The first is
  // cheap, and may be called by any thread.
  bool HasPasser() noexcept;
  JobList TakePasser() noexcept;

  // A batch begins, of the jobs as they are now; `passes`: at a checkpoint of the run that began
  // last. A probe's time is not known.
  Runs::Id BeginRun(const JobList& jobs, bool passes, bool is_probe = false) noexcept;
  // It ends. Returns for how long it had the device, in microseconds.
  double EndRun(Runs::Id run, bool completed) noexcept;

  // A batch took so much of the device by the device's own time: one that was launched behind
  // another, or was passed, does not pay for that. Its tenants were charged with what was predicted
  // when it was formed, unless it runs again; the difference is settled now. So nobody gains by
  // being predicted badly, or by ending a run late.
  void Settle(const JobList& jobs, double took_us, bool runs_again) noexcept;

  // Answers jobs that have run, at least one: from here on they cannot be cancelled.
  void AnswerAll(JobList jobs) noexcept;

  // Whether all of these running jobs were cancelled or have expired. Requires at least one.
  bool AllDead(const JobList& jobs) const noexcept;

  // For a batch that failed, was ended or must run again: answers and removes the jobs that were
  // cancelled or have expired.
  void DropDead(JobList* jobs) noexcept;

  // The device is lost: answers everything that waits with INTERNAL, and refuses new jobs with it.
  void FailAll() noexcept;

  // What neither weights nor runs hold of the device's memory.
  int64_t free_device_bytes() const;

  // ---- Completion threads.

  // The next answer to deliver; `at_hand` as above. False if there is none; with `wait`, only after
  // Stop. In the order in which they were posted, and fair between tenants by bytes.
  bool NextAnswer(bool wait, AtHand* at_hand, Answer* answer) noexcept;

  // ---- The deadline thread: answers waiting requests whose deadlines have passed; or all as they
  // pass, until Stop.
  void Expire() noexcept;
  void ExpireUntilStopped() noexcept;

  // ---- The owner.

  void SetTenants(Tenants::Terms terms) noexcept;

  // Refuses new jobs from now on; waiting ones run without the batch delay.
  void StartDraining() noexcept;
  // Waits until all that was admitted is answered. False when the deadline came first.
  bool WaitUntilAnswered(TimePoint deadline);
  // Answers everything that still waits with DRAINING.
  void RefuseWaiting() noexcept;

  // Let the threads return. Stop requires that nothing is open.
  void StopTokenizers() noexcept;
  void Stop() noexcept;

  LoadStats load() const;
  // What runs hold of the device's memory, and the most so far.
  std::pair<RunMemory, RunMemory> run_memory() const;
  // What each tenant has had of the device, in seconds. The first tenants have a row of their own.
  std::vector<std::pair<std::string, double>> tenant_seconds() const;

  // The device's memory: for the engine thread, before the first request.
  DeviceBudget& device_memory() { return device_memory_; }
  const DeviceBudget& device_memory() const { return device_memory_; }

 private:
  friend class Reservation;

  // Holds the lock; when it has let go of it, wakes the threads that have been given something.
  class ABSL_SCOPED_LOCKABLE Guard {
   public:
    explicit Guard(Ledger& ledger) ABSL_EXCLUSIVE_LOCK_FUNCTION(ledger.mu_) : ledger_(ledger) {
      ledger_.mu_.Lock();
    }
    ~Guard() ABSL_UNLOCK_FUNCTION() { ledger_.UnlockAndWake(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Ledger& ledger_;
  };
  void UnlockAndWake() ABSL_UNLOCK_FUNCTION(mu_);

  // The jobs that are dealt with under one lock: some 5 µs.
  static constexpr int kJobsAtOnce = 4;

  // ---- ledger.cc
  // OK if jobs are accepted, else DRAINING or INTERNAL.
  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static Tenant& TenantOf(const Job& job) { return *job.reservation.tenant_; }
  // Enters the job in the table of open requests.
  void Open(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Close(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetDeadline(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Runs::Id DoBeginRun(const JobList& jobs, bool passes, bool is_probe);
  void ChargeForStatistics(const std::string& tenant, double us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A job that is destroyed takes the lock. So none may be on the way of an exception while it is
  // held: what allocates takes a reference, or is behind something noexcept.
  void PushToTokenize(std::unique_ptr<Job>&& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::unique_ptr<Job> TakeToTokenize(AtHand* at_hand) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: a tokenizer has it.
  std::unique_ptr<Job> RemoveToTokenize(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PushReady(std::unique_ptr<Job>&& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Post(Tenant& tenant, Answer answer) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    DoPost(tenant, std::move(answer));
  }
  void DoPost(Tenant& tenant, Answer&& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TakeAnswer(AtHand* at_hand, Answer* answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Closes a job that waits or is being tokenized, and posts its answer.
  void Withdraw(Job& job, const absl::Status& status) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    DoWithdraw(job, status);
  }
  void DoWithdraw(Job& job, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WithdrawAll(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool WithdrawExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Reservations'.
  void Adjust(Tenant& tenant, const Cost& by, bool gathers = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LeaveLine(Reservation& reservation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveBack(Reservation& reservation, const Cost& kept) noexcept;

  // ---- admission.cc
  // What is expected of a request.
  struct Outlook {
    double wait_us = 0;
    double own_us = 0;  // with its company
    double alone_us = 0;
    double wait_margin = 1;   // that the wait may be longer
    bool makes_late = false;  // others that were admitted before
  };
  Outlook Foresee(const Job& job, const Tenant* tenant, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckAloneLocked(const Cost& cost, const Cost& quota) const;
  absl::Status CheckTime(const PredictedTime& time) const;
  absl::Status CheckQuota(const Cost& cost, const Tenant& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRoom(const Job& job, Tenant* tenant, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckDeadlines(const Job& job, const Tenant* tenant, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayTakeLast(const Job& job, const Tenant* tenant, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Take(Job& job, TimePoint now) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    DoTake(job, now);
  }
  void DoTake(Job& job, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- batching.cc
  // Ready jobs of one batch key. Never empty.
  struct Group {
    absl::btree_map<Rank, std::unique_ptr<Job>> jobs;
    int64_t tokens = 0;  // of all of them
  };
  // What the device can take now: anything, the next batch behind one that runs, or at a checkpoint
  // of a run what may pass it.
  struct Opening {
    enum class Beside {
      kNothing,  // the first request is taken whatever it needs of the memory
      kLaunch,   // one that runs: the first is taken once it fits, and nobody before it
      kHeldUp,   // those that it passes: the first of those that fit is taken
    };
    Beside beside = Beside::kNothing;
    Runs::Passage passage = {};
    double pace = 1;
    int64_t free_bytes = std::numeric_limits<int64_t>::max();  // of the device's memory

    bool HasMemoryFor(const Job& job) const {
      return beside == Beside::kNothing || job.memory.bytes() <= free_bytes;
    }
  };
  Opening OpeningFor(Opening::Beside beside, TimePoint now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns when its group is due.
  TimePoint Insert(std::unique_ptr<Job>&& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::unique_ptr<Job> Remove(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // When the group is due: as soon as it can fill a batch, or its first has waited for the delay.
  TimePoint DueAt(const Group& group) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  TimePoint FirstDueAt() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How far a search has come that lets go of the lock after some looks at tenants and requests.
  struct Search {
    static constexpr int kLooks = 64;
    FairShare::Turn turn{-std::numeric_limits<double>::infinity(), 0};
    Rank rank{TimePoint::min(), 0};  // of that tenant's requests, the last
    bool done = false;
  };
  // Null: there is none, or the search is not done.
  const Job* FirstDue(TimePoint now, const Opening& opening, Search* search)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct Growing;
  JobList TakeBatch(bool passes);
  void Begin(const Job& head, TimePoint now, const Opening& opening, std::optional<Growing>* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Grow(Growing* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Take(const Job& job, double us, Growing* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropLate(const Job& job, TimePoint now) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    DoDropLate(job, now);
  }
  void DoDropLate(const Job& job, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Budgets budgets_;
  const std::shared_ptr<Clock> clock_;
  Counters& counters_;
  DeviceBudget device_memory_;
  const int tokenizer_threads_;
  const int completion_threads_;

  mutable Mutex mu_;
  CondVar device_wakes_, deadline_wakes_, tokenizer_wakes_, answer_wakes_, all_answered_;

  BatchLimits limits_ ABSL_GUARDED_BY(mu_);
  Cost in_use_ ABSL_GUARDED_BY(mu_) = {0, 0, 0};
  Cost gathered_ ABSL_GUARDED_BY(mu_) = {0, 0, 0};  // by Reserve
  Tenants tenants_ ABSL_GUARDED_BY(mu_);
  Runs runs_ ABSL_GUARDED_BY(mu_);
  Ticket last_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  TimePoint next_trial_ ABSL_GUARDED_BY(mu_) = TimePoint::min();

  absl::btree_map<Ticket, Job*> open_ ABSL_GUARDED_BY(mu_);  // in order of arrival
  // Jobs that wait or are being tokenized, by their deadlines.
  absl::btree_map<std::pair<TimePoint, Ticket>, Job*> deadlines_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, Group> groups_ ABSL_GUARDED_BY(mu_);  // by batch key
  int64_t ready_ ABSL_GUARDED_BY(mu_) = 0;                              // jobs in the groups
  int64_t unanswered_ ABSL_GUARDED_BY(mu_) = 0;                         // opened, and not delivered

  int large_texts_ ABSL_GUARDED_BY(mu_) = 0;    // threads that work on one
  int large_answers_ ABSL_GUARDED_BY(mu_) = 0;  // likewise
  int idle_completions_ ABSL_GUARDED_BY(mu_) = 0;

  // Whom to wake once the lock is free.
  struct Wakes {
    bool device = false;
    bool deadlines = false;
    int tokenizers = 0;
    int completions = 0;
  };
  Wakes wakes_ ABSL_GUARDED_BY(mu_);

  // When the engine thread will wake; min() while it is awake, or has been woken. Avoids needless
  // wake-ups.
  TimePoint device_sleeps_until_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  // When the deadline thread will wake; min() while it is awake. It may then find nothing to do:
  // that is cheaper than waking it for every request that ends.
  TimePoint deadline_sleeps_until_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool tokenizers_stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::map<std::string, double> tenant_seconds_ ABSL_GUARDED_BY(mu_) = {{"", 0}};
};

}  // namespace castor

// The ledger: every request that the engine has admitted and not yet answered, in the order of
// service, behind one lock. Admission, batches, deadlines, cancellation, drains, fair shares and
// statistics all work on it.
//
// A job passes through these states; its owner is in parentheses:
//
//   admitted    it has its share of the budgets and its place in the order (Submit)
//   preparing   its texts wait to be tokenized (the ledger), or are tokenized (a tokenizer thread)
//   ready       it waits for a batch (the ledger)
//   running     (the engine thread)
//   answered    its answer waits (the ledger), or is delivered (a completion thread)
//
// Each request is answered exactly once: by the function that takes its ticket out of the table of
// open requests, under the lock. Cancellation, expiry, a drain, a lost device and a finished batch
// all do that, so only one of them wins.
//
// All methods may be called from any thread, except where noted. Functions that change the
// bookkeeping are noexcept: without memory for a node of a table a request could stay registered
// and never be answered, so the process ends instead (engine/DESIGN.md, "When things fail").
//
// ledger.cc has the life of a request, admission.cc admission, batching.cc the choice of batches,
// and pools.cc the work of tokenizer and completion threads.
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

  // TOO_LARGE when `cost` alone exceeds a budget or a quota of its tenant, or when the device could
  // never have so much memory free.
  absl::Status CheckAlone(const Cost& cost, const std::string& tenant) const;
  absl::Status CheckMemory(const MemoryNeed& memory) const;

  // Checks both, and the job's predicted time. Then takes the job's share of the budgets, and gives
  // it its ticket and its place in the order.
  //
  // DRAINING or INTERNAL when no more jobs are accepted. TOO_LARGE also when the request alone
  // would take longer than any request may. DEADLINE_EXCEEDED when its deadline is expected to pass
  // before it could be answered. QUEUE_FULL when its tenant has used up a quota, when it does not
  // fit next to what is admitted, would wait for too long, or would make earlier requests late. The
  // last two errors have a hint when to retry, if a retry may help.
  absl::Status Admit(Job& job);

  // Engine::Reserve.
  absl::StatusOr<std::shared_ptr<void>> Reserve(const std::string& name, int64_t bytes);

  // Take an admitted job: Enqueue one that is ready to run, whose actual cost and time may be known
  // by now, or that needs no run; Tokenize one that must be tokenized first. An admitted request is
  // not refused for being larger than was estimated. DRAINING or INTERNAL when no more jobs are
  // accepted; the job is then dropped and its completion not called.
  //
  // With `batch`, the caller offers to run a short job itself, and to deliver its answer. If the
  // engine thread sleeps and nothing waits, the job becomes `*batch`, and the caller has the engine
  // thread's turn: that thread takes no batch until EndTurn. A job that needs no run becomes
  // `*batch` where no earlier answer of its tenant waits: it is closed, and there is no turn.
  absl::StatusOr<Ticket> Enqueue(std::unique_ptr<Job> job, JobList* batch = nullptr) noexcept;
  void EndTurn() noexcept;
  absl::StatusOr<Ticket> Tokenize(std::unique_ptr<Job> job) noexcept;

  // Answers a waiting request with CANCELLED; only marks one that is running.
  void Cancel(Ticket ticket) noexcept;

  // ---- Tokenizer threads.

  // Size of the thread's current item. Large items never occupy every thread of a pool.
  enum class WorkSize { kNothing, kSmall, kLarge };

  // Waits for the next job to tokenize; null after StopTokenizers. `size` says what the thread has
  // just finished, and becomes what it takes. In the order of service, except that a request gives
  // way to others after each slice of its texts, so that many or long texts do not delay them.
  // Between tenants, fair by bytes of text.
  std::unique_ptr<Job> NextToTokenize(WorkSize* size) noexcept;

  // Whether the job is still unanswered.
  bool IsOpen(const Job& job) const;

  // Give a job back: more of its texts are to be tokenized; or it is ready, with its actual cost,
  // time and memory. A job that has been answered in the meantime is dropped.
  void TokenizeMore(std::unique_ptr<Job> job) noexcept;
  void Tokenized(std::unique_ptr<Job> job) noexcept;

  // Answers a job with an error, unless it has been answered in the meantime. Also for the engine
  // thread.
  void Refuse(std::unique_ptr<Job> job, const absl::Status& status) noexcept;

  // ---- The engine thread.

  // The next batch: any if nothing runs, else one that fits next to what runs. With `wait`, blocks
  // until one is due; the result is then empty only after Stop, or at the time `until`.
  JobList NextBatch(bool wait, TimePoint until = TimePoint::max()) noexcept;

  // At a checkpoint of a run: whether a batch is due that may preempt it, and that batch.
  // HasPreemptor is cheap, and any thread may call it.
  bool HasPreemptor() noexcept;
  JobList TakePreemptor() noexcept;

  // A batch of these jobs begins. `preempts`: at a checkpoint of the run that began last. The time
  // of a probe is not predicted.
  Runs::Id BeginRun(const JobList& jobs, bool preempts, bool is_probe = false) noexcept;
  // The run ends. Returns how long it had the device, in microseconds.
  double EndRun(Runs::Id run, bool completed) noexcept;

  // Charges the tenants of a batch with what it took by the device's own clock, which excludes
  // waits behind earlier launches and preemptions. They were charged with the predicted time when
  // the batch was formed, unless it runs again, so only the difference is charged. So no tenant
  // gains by bad predictions, or by ending its runs late.
  void ChargeActual(const JobList& jobs, double took_us, bool runs_again) noexcept;

  // Answers jobs that have run, at least one. They cannot be cancelled any more.
  void AnswerAll(JobList jobs) noexcept;
  // The same where the caller delivers the answers itself, and calls Delivered after each.
  void CloseAll(const JobList& jobs) noexcept;
  void Delivered() noexcept;

  // Whether every one of these running jobs is cancelled or has expired. Requires at least one.
  bool AllAbandoned(const JobList& jobs) const noexcept;

  // After a batch failed, was ended or must run again: answers and removes the jobs that are
  // cancelled or have expired.
  void AnswerAbandoned(JobList* jobs) noexcept;

  // The device is lost: answers all waiting jobs with INTERNAL, and refuses new ones with it.
  void FailAll() noexcept;

  // The device's memory that neither weights nor runs hold.
  int64_t free_device_bytes() const;

  // ---- Completion threads.

  // The next answer to deliver; `size` as above. False if there is none; with `wait`, only after
  // Stop. A tenant's answers come in the order in which they were posted; between tenants, fair by
  // bytes.
  bool NextAnswer(bool wait, WorkSize* size, Answer* answer) noexcept;

  // ---- The deadline thread: answers waiting requests whose deadlines have passed; the second, as
  // they pass, until Stop.
  void Expire() noexcept;
  void ExpireUntilStopped() noexcept;

  // ---- The owner.

  void SetTenants(Tenants::Terms terms) noexcept;

  // Refuses new jobs from now on; waiting ones run without the batch delay.
  void StartDraining() noexcept;
  // Waits until every admitted request is answered. False when the deadline came first.
  bool WaitUntilAnswered(TimePoint deadline);
  // Answers all waiting jobs with DRAINING.
  void RefuseWaiting() noexcept;

  // Let the threads return. Stop requires that nothing is open.
  void StopTokenizers() noexcept;
  void Stop() noexcept;

  LoadStats load() const;
  // The device's memory that runs hold, and the maximum so far.
  std::pair<RunMemory, RunMemory> run_memory() const;
  // Seconds of the device by tenant. Only the first tenants have rows of their own.
  std::vector<std::pair<std::string, double>> tenant_seconds() const;

  // The device's memory budget. Only the engine thread may change it, before the first request.
  DeviceBudget& device_memory() { return device_memory_; }
  const DeviceBudget& device_memory() const { return device_memory_; }

 private:
  friend class Reservation;

  // Holds the lock. After it has released it, wakes the threads for which there is something to do.
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

  // How many jobs are handled before the lock is released: some 5 µs.
  static constexpr int kJobsAtOnce = 4;

  // ---- ledger.cc
  // OK if jobs are accepted, else DRAINING or INTERNAL.
  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static Tenant& TenantOf(const Job& job) { return *job.reservation.tenant_; }
  // Enters the job in the table of open requests.
  void Open(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Close(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetDeadline(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Runs::Id DoBeginRun(const JobList& jobs, bool preempts, bool is_probe);
  void ChargeForStatistics(const std::string& tenant, double us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Destroying a job takes the lock, so no exception may destroy one while the lock is held:
  // functions that allocate take the job by reference, or are called by a noexcept function.
  void PushToTokenize(std::unique_ptr<Job>&& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::unique_ptr<Job> TakeToTokenize(WorkSize* size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null if a tokenizer has it.
  std::unique_ptr<Job> RemoveToTokenize(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndPreparing(std::unique_ptr<Job>&& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseWithoutRun(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PushReady(std::unique_ptr<Job>&& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns when its group is due.
  TimePoint MakeReady(std::unique_ptr<Job>&& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Post(Tenant& tenant, Answer answer) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    DoPost(tenant, std::move(answer));
  }
  void DoPost(Tenant& tenant, Answer&& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TakeAnswer(WorkSize* size, Answer* answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Closes a job that waits or is being tokenized, and posts an error as its answer.
  void Withdraw(Job& job, const absl::Status& status) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    DoWithdraw(job, status);
  }
  void DoWithdraw(Job& job, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WithdrawAll(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool WithdrawExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // For reservations.
  void Adjust(Tenant& tenant, const Cost& by, bool gathers = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LeaveLine(Reservation& reservation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveBack(Reservation& reservation, const Cost& kept) noexcept;

  // ---- admission.cc
  struct LatencyForecast {
    double wait_us = 0;
    double own_us = 0;  // with its batch's fixed time, unless others share it
    double alone_us = 0;
    double wait_margin = 1;   // safety factor for the wait
    bool makes_late = false;  // it would make earlier requests miss their deadlines
  };
  LatencyForecast ForecastLatency(const Job& job, const Tenant* tenant, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckAloneLocked(const Cost& cost, const Cost& quota) const;
  absl::Status CheckTime(const PredictedTime& time) const;
  absl::Status CheckQuota(const Cost& cost, const Tenant& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRoom(const Job& job, Tenant* tenant, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckDeadlines(const Job& job, const Tenant* tenant, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayUseReserve(const Job& job, const Tenant* tenant, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the job its ticket, its share of the budgets and its place in the order.
  void TakeBudgets(Job& job, TimePoint now) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    DoTakeBudgets(job, now);
  }
  void DoTakeBudgets(Job& job, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- batching.cc
  // Ready jobs of one batch key. Never empty.
  struct Group {
    absl::btree_map<Rank, std::unique_ptr<Job>> jobs;
    int64_t tokens = 0;  // of all of them
  };
  // The room on the device for one more batch.
  struct DeviceSlot {
    enum class Kind {
      kIdle,        // nothing runs: the first request is taken whatever memory it needs
      kPipelined,   // behind a run: the first request is taken once it fits, and none before it
      kPreempting,  // at a checkpoint of a run: the first request that fits is taken
    };
    Kind kind = Kind::kIdle;
    Runs::PreemptionLimit limit = {};
    double slowdown = 1;
    int64_t free_bytes = std::numeric_limits<int64_t>::max();  // of the device's memory

    bool HasMemoryFor(const Job& job) const {
      return kind == Kind::kIdle || job.memory.bytes() <= free_bytes;
    }
  };
  DeviceSlot DeviceSlotNow(DeviceSlot::Kind kind, TimePoint now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns when its group is due.
  TimePoint InsertReady(std::unique_ptr<Job>&& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::unique_ptr<Job> RemoveReady(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // When the group is due: when it can fill a batch, or its first job has waited for the delay.
  TimePoint DueAt(const Group& group) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  TimePoint FirstDueAt() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The state of a search that releases the lock after some looks at tenants and requests.
  struct Search {
    static constexpr int kLooks = 64;
    FairShare::Turn turn{-std::numeric_limits<double>::infinity(), 0};
    Rank rank{TimePoint::min(), 0};  // the last request of that tenant that was looked at
    bool done = false;
  };
  // Null if there is none, or if the search is not done.
  const Job* FirstDue(TimePoint now, const DeviceSlot& slot, Search* search)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct GrowingBatch;
  JobList TakeBatch(bool preempts);
  void StartBatch(const Job& head, TimePoint now, const DeviceSlot& slot,
                  std::optional<GrowingBatch>* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Grow(GrowingBatch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MoveToBatch(const Job& job, double us, GrowingBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the engine thread's turn may be lent for this job; and the job as a batch.
  bool MayLendTurn(const Job& job, TimePoint now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  JobList TakeAlone(const Job& job, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnswerTooLate(const Job& job, TimePoint now) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    DoAnswerTooLate(job, now);
  }
  void DoAnswerTooLate(const Job& job, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

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

  int large_texts_ ABSL_GUARDED_BY(mu_) = 0;    // threads that tokenize a large text
  int large_answers_ ABSL_GUARDED_BY(mu_) = 0;  // threads that deliver a large answer
  int idle_completions_ ABSL_GUARDED_BY(mu_) = 0;

  // The threads to wake once the lock is released.
  struct Wakes {
    bool device = false;
    bool deadlines = false;
    int tokenizers = 0;
    int completions = 0;
  };
  Wakes wakes_ ABSL_GUARDED_BY(mu_);

  // When the engine thread will wake; min() while it is awake or being woken. Avoids needless
  // wake-ups.
  TimePoint device_sleeps_until_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  bool turn_lent_ ABSL_GUARDED_BY(mu_) = false;  // to a caller: see Enqueue
  // When the deadline thread will wake; min() while it is awake. It may find nothing to do then,
  // which is cheaper than waking it for every request that ends.
  TimePoint deadline_sleeps_until_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool tokenizers_stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::map<std::string, double> tenant_seconds_ ABSL_GUARDED_BY(mu_) = {{"", 0}};
};

}  // namespace castor

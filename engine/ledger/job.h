// A job: one request from its admission to its answer, as the ledger's entry for it.
//
// A job is owned by exactly one place at a time: Submit, the ledger while it waits to be tokenized
// or to run, a tokenizer thread, the engine thread, a completion thread. The owner may change it
// without a lock; what others read meanwhile is guarded by the ledger's, as noted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engine/automatic/plan.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/ledger/budgets.h"
#include "engine/ledger/device_memory.h"
#include "engine/ledger/rank.h"
#include "engine/ledger/reservation.h"
#include "engine/request.h"
#include "engine/requests/work.h"

namespace castor {

// What an execution reports for all requests of its batch.
struct BatchOutcome {
  uint64_t id = 0;  // of the run
  TimePoint begun;
  TimePoint ended;
  ExecutionTimes times;
  int32_t requests = 1;
  int64_t tokens = 0;
  int64_t peak_bytes = 0;  // the device's, since the engine started
  std::string device;      // "cpu", "cuda:0"
};

using Completion = std::variant<AttentionCompletion, EncodeCompletion>;

struct Job {
  // ---- What the ledger needs. Constant once the job has been admitted, except that a text's
  // cost, time and memory are estimates until it has been tokenized; and that the engine thread
  // changes the kernel, the key and the time between two runs of an automatic choice.
  Operation operation = Operation::kAttend;
  KernelName kernel = KernelName::kVanilla;
  std::string batch_key;  // jobs of equal keys may share a batch: requests/work.h
  std::string tenant;
  Priority priority = Priority::kNormal;
  std::optional<TimePoint> deadline;
  Cost cost;                // its tokens are those that count against a batch's limit
  PredictedTime predicted;  // of one run
  MemoryNeed memory;        // likewise, whichever kernel runs

  // ---- Set by the ledger when it admits the job.
  Ticket ticket = 0;
  Rank rank;
  Reservation reservation;

  // ---- For the owner only.
  std::variant<AttentionWork, EncodeWork> work;
  Plan plan;        // what is still to do
  Completion done;  // the ledger may take it while the job is being tokenized
  TimePoint received;
  TimePoint queued;          // when it was ready to run
  int64_t query_tokens = 0;  // what reports count
  int64_t slice_bytes = 0;   // of text that its tokenizer goes through next
  double turn_middle = 0;    // virtual: the middle of its batch's service
  TimePoint launched;        // the last launch up to the first run that succeeded
  std::shared_ptr<const BatchOutcome> last_run;  // that succeeded; null before the first one
  int device_errors = 0;

  // ---- Guarded by the ledger's lock.
  enum class State { kPreparing, kReady, kRunning } state = State::kPreparing;
  bool cancelled = false;  // requested while it ran
  int slices = 0;          // that were tokenized
};

using JobList = std::vector<std::unique_ptr<Job>>;

inline bool Expired(const Job& job, TimePoint now) { return job.deadline && *job.deadline <= now; }

// Of the jobs as one batch: the predicted time in microseconds, what they need of the device's
// memory, and the tokens that reports count.
double PredictedUs(const JobList& jobs);
MemoryNeed MemoryOf(const JobList& jobs);
int64_t QueryTokens(const JobList& jobs);

// How a job ends: what a completion thread delivers.
struct Answer {
  std::unique_ptr<Job> job;  // null when it was refused while its tokenizer still held it
  Completion done;
  absl::Status status;
  int64_t bytes = 0;  // of the result
};

// An answer for a job that failed or never ran; the second is for the completion of a job that
// somebody else holds. The status is a deep copy: a shared one would be reference-counted on
// several threads, inside a library that ThreadSanitizer cannot see into.
Answer Refusal(std::unique_ptr<Job> job, const absl::Status& status);
Answer Refusal(Completion done, const absl::Status& status);

// An answer for a job whose last run's output is in host memory.
Answer Success(std::unique_ptr<Job> job);

}  // namespace castor

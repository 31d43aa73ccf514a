// A job: one admitted request on its way through the engine, and the answer it ends in.
//
// A job is owned by exactly one place at a time: Submit, the tokenizer pool, the queue, the engine
// thread, the completion pool, in this order. The owner may change it without a lock; the few
// fields that others read meanwhile are guarded by Scheduler's lock, as noted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engine/attention/problem.h"
#include "engine/attention/resolve.h"
#include "engine/base/host_memory.h"
#include "engine/device/device.h"
#include "engine/encoder/network/batch.h"
#include "engine/encoder/text/prepare.h"
#include "engine/engine.h"
#include "engine/jobs/active_runs.h"
#include "engine/jobs/admission.h"
#include "engine/jobs/device_memory.h"
#include "engine/jobs/models.h"
#include "engine/jobs/plan.h"
#include "engine/jobs/predicted_time.h"
#include "engine/jobs/rank.h"
#include "engine/request.h"

namespace castor {

enum class Operation { kAttend, kEncode };

// "attend", "encode".
std::string_view NameOf(Operation operation);

struct AttentionWork {
  attention::Resolved resolved;
  HostBuffer input;            // query, key and value, each aligned to 64 bytes
  HostBuffer output;           // what the caller gets
  attention::Problem problem;  // points into the three above
};

struct EncodeWork {
  EncodeRequest request;  // texts point into `text`; the input is empty once it is staged
  std::string text;       // the copies of the request's texts
  ModelPtr model;
  Kernel kernel = Vanilla{};
  const Prompt* prompt = nullptr;  // of the model; before the texts
  encoder::Prepared prepared;      // filled by the tokenizer pool when the request brings texts
  double tokenize_us = 0;          // time spent tokenizing, without the waits between slices
  HostBuffer input;                // embeddings [tokens, hidden], if the request brings them
  HostBuffer output;
  encoder::BatchItem item;  // points into `prepared`, `input` and `output`
  // Part of the answer, one entry per sequence. Allocated early, where OUT_OF_MEMORY can be
  // answered.
  std::vector<int64_t> lengths;
  std::vector<int64_t> token_counts;
  std::vector<encoder::RowRange> pooled;  // what is pooled, where that is not all of each sequence
};

// What an execution reports for all requests of its batch.
struct BatchOutcome {
  uint64_t id = 0;  // of the run
  TimePoint begun;
  TimePoint ended;
  ExecutionTimes times;
  int32_t requests = 0;
  int64_t tokens = 0;
  int64_t peak_bytes = 0;  // the device's, since the engine started
  std::string device;      // "cpu", "cuda:0"
};

using Completion = std::variant<AttentionCompletion, EncodeCompletion>;

struct Job {
  // ---- Constant once the job has been handed to the Scheduler, except the time and the memory,
  // which the tokenizer predicts again when it knows the lengths, and the kernel and the key of an
  // automatic choice, which the engine thread changes between two runs, together with the time.
  Ticket ticket = 0;
  Rank rank;  // ticket and rank are set by Scheduler, from the reservation
  Operation operation = Operation::kAttend;
  KernelName kernel = KernelName::kVanilla;
  Priority priority = Priority::kNormal;
  std::string tenant;
  std::optional<TimePoint> deadline;
  TimePoint received;
  std::string batch_key;    // jobs of equal keys may share a batch: batch_key.h
  PredictedTime predicted;  // of one run
  MemoryNeed memory;        // likewise, whichever kernel runs

  // ---- For the owner only.
  std::variant<AttentionWork, EncodeWork> work;
  Plan plan;        // what is still to do
  Completion done;  // Scheduler may take it while the job is being tokenized
  Reservation reservation;
  int64_t tokens = 0;        // counted against a batch's limit: the larger of query and key tokens
  int64_t query_tokens = 0;  // what reports count
  TimePoint queued;          // when it was admitted, staged and tokenized
  double half_turn = 0;      // virtual: the middle of its batch's service
  TimePoint launched;        // the last launch up to the first run that succeeded
  std::shared_ptr<const BatchOutcome> last_run;  // that succeeded; null before the first one
  int device_errors = 0;

  // ---- Guarded by Scheduler::mu_.
  enum class Phase { kTokenizing, kWaiting, kRunning } phase = Phase::kWaiting;
  bool cancelled = false;  // requested while it ran
};

using JobList = std::vector<std::unique_ptr<Job>>;

int64_t QueryTokens(const JobList& jobs);

// The predicted time of the jobs as one batch, in microseconds.
double PredictedUs(const JobList& jobs);
// What the jobs need of the device's memory as one batch.
MemoryNeed MemoryOf(const JobList& jobs);
// What is known of their run.
ActiveRuns::Plan RunPlanOf(const JobList& jobs, bool passes);

// Makes an attention job run with another kernel from now on.
void UseKernel(const Kernel& kernel, Job* job);

// How a job ends: the input of the completion pool.
struct Answer {
  std::unique_ptr<Job> job;  // null when it was refused while its tokenizer still held it
  Completion done;
  absl::Status status;
  std::string tenant;  // the job's
};

// An answer for a job that failed or never ran; the second is for the completion of a job that
// somebody else holds. The status is a deep copy: a shared one would be reference-counted on
// several threads, inside a library that ThreadSanitizer cannot see into.
Answer Refusal(std::unique_ptr<Job> job, const absl::Status& status);
Answer Refusal(const std::string& tenant, Completion done, const absl::Status& status);

// An answer for a job whose last run's output is in host memory.
Answer Success(std::unique_ptr<Job> job);

// Builds the result, releases what else the job holds, and calls the completion. It allocates only
// a report's few bytes: without memory for them the process ends.
void Deliver(Answer answer) noexcept;

}  // namespace castor

// A job: one admitted request on its way through the engine, and the answer it ends in.
//
// A job is owned by exactly one place at a time: Submit, the tokenizer pool, the queue, the engine
// thread, the completion pool, in this order. Whoever owns it may change it without a lock; the
// few fields that others look at meanwhile are guarded by Scheduler's lock, as noted.
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
#include "engine/encoder/batch.h"
#include "engine/encoder/prepare.h"
#include "engine/engine.h"
#include "engine/jobs/admission.h"
#include "engine/jobs/models.h"
#include "engine/jobs/plan.h"
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
  EncodeRequest request;  // texts point into `text`; embeddings have no pieces any more
  std::string text;       // the copy of every text of the request
  ModelPtr model;
  Kernel kernel = Vanilla{};
  encoder::Prepared prepared;  // filled by the tokenizer pool when the request brings texts
  double tokenize_us = 0;      // that this took it, waiting in between not counted
  HostBuffer input;            // embeddings [tokens, hidden], if the request brings them
  HostBuffer output;
  encoder::BatchItem item;  // points into the three above
  // Of the answer, an entry per sequence: made here, where a lack of memory can be answered.
  std::vector<int64_t> lengths;
  std::vector<int64_t> token_counts;
};

// What an execution says about all requests of its batch.
struct BatchOutcome {
  ExecutionTimes times;
  int32_t requests = 0;
  int64_t tokens = 0;
  int64_t peak_bytes = 0;  // the device's, since the engine started
  std::string device;      // "cpu", "cuda:0"
};

using Completion = std::variant<AttentionCompletion, EncodeCompletion>;

struct Job {
  // ---- Constant once the job has been handed to the Scheduler, but for the kernel and the key of
  // an automatic choice, which the engine thread changes between two runs.
  Ticket ticket = 0;
  Rank rank;  // the ticket and the rank are the Scheduler's to set
  Operation operation = Operation::kAttend;
  KernelName kernel = KernelName::kVanilla;
  Priority priority = Priority::kNormal;
  std::optional<TimePoint> deadline;
  TimePoint received;
  std::string batch_key;  // jobs of equal keys may share a batch: batch_key.h

  // ---- The owner's.
  std::variant<AttentionWork, EncodeWork> work;
  Plan plan;        // what of it is still to do
  Completion done;  // Scheduler may take it while the job is tokenized
  Reservation reservation;
  int64_t tokens = 0;        // against a batch's budget: the larger of query and key tokens
  int64_t query_tokens = 0;  // what reports count
  TimePoint queued;          // admitted, staged and tokenized
  TimePoint launched;        // the last time, if it failed; not again for another kernel
  std::shared_ptr<const BatchOutcome> last_run;  // that succeeded; null before the first
  int device_errors = 0;

  // ---- Guarded by Scheduler::mu_.
  enum class Phase { kTokenizing, kWaiting, kRunning } phase = Phase::kWaiting;
  bool cancelled = false;  // asked for while it ran
};

using JobList = std::vector<std::unique_ptr<Job>>;

int64_t QueryTokens(const JobList& jobs);

// Lets an attention job run with another kernel from now on.
void UseKernel(const Kernel& kernel, Job* job);

// How a job ends: what the completion pool is given.
struct Answer {
  std::unique_ptr<Job> job;  // null when it was refused while its tokenizer still held it
  Completion done;
  absl::Status status;
};

// An answer for a job that failed or was never run; without the job, for a completion alone. It
// gets a status of its own: a shared one's references would be counted on several threads inside a
// library that ThreadSanitizer cannot look into.
Answer Refusal(std::unique_ptr<Job> job, const absl::Status& status);
Answer Refusal(Completion done, const absl::Status& status);

// An answer for a job whose last run's output is in host memory.
Answer Success(std::unique_ptr<Job> job);

// Builds the result, gives back what else the job holds, and calls the completion. What is left to
// allocate are a report's few words: without memory for them the process ends.
void Deliver(Answer answer) noexcept;

}  // namespace castor

// A job: one request from its admission to its answer, and the ledger's entry for it.
//
// A job has exactly one owner at a time: Submit, the ledger while it waits to be tokenized or to
// run, a tokenizer thread, the engine thread, or a completion thread. The owner may change it
// without a lock, except the members that the ledger's lock guards, which other threads read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engine/automatic/plan.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/ledger/budgets.h"
#include "engine/ledger/device_memory.h"
#include "engine/ledger/rank.h"
#include "engine/request.h"
#include "engine/requests/work.h"

namespace castor {

class Ledger;
struct Tenant;

// A request's share of the ledger's budgets, and its place in the order of service while it waits.
// The destructor gives both back, on any thread. It outlives the job, with the answer's bytes,
// until their holder releases them. Movable. Keeps its ledger alive.
class Reservation final : public AnswerShare {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(tenant_, other.tenant_);
    std::swap(cost_, other.cost_);
    std::swap(place_, other.place_);
    std::swap(gathers_, other.gathers_);
    return *this;
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() override { Release(); }

  // Gives back all but `bytes`: the request is answered, and its caller still holds the answer. The
  // bytes may grow, unless the reservation holds none.
  void ResizeTo(int64_t bytes) noexcept override;

  void Release() noexcept;

 private:
  friend class Ledger;

  std::shared_ptr<Ledger> ledger_;
  Tenant* tenant_ = nullptr;
  Cost cost_;
  std::optional<Rank> place_;  // in the tenant's line, while it waits
  bool gathers_ = false;       // made by Ledger::Reserve: counts against the tenant's quotas only
};

// A run's report for all requests of its batch.
struct BatchOutcome {
  uint64_t id = 0;  // of the run
  TimePoint begun;
  TimePoint ended;
  ExecutionTimes times;
  int32_t requests = 1;
  int64_t tokens = 0;
  int64_t peak_bytes = 0;  // of the device's memory, since the engine started
  std::string device;      // "cpu", "cuda:0"
};

using Completion = std::variant<AttentionCompletion, EncodeCompletion>;

struct Job {
  // ---- For the ledger. Constant once the job has been admitted, with two exceptions: the cost,
  // time and memory of texts are estimates until they have been tokenized, and the engine thread
  // changes the kernel, the key and the time between two runs of the automatic kernel.
  Operation operation = Operation::kAttend;
  KernelName kernel = KernelName::kVanilla;
  std::string batch_key;  // jobs of equal keys may share a batch: requests/work.h
  std::string tenant;
  Priority priority = Priority::kNormal;
  std::optional<TimePoint> deadline;
  Cost cost;                // its tokens count against a batch's limit
  PredictedTime predicted;  // of one run
  MemoryNeed memory;        // of one run, whichever kernel runs

  // ---- Set by the ledger when it admits the job.
  Ticket ticket = 0;
  Rank rank;
  Reservation reservation;

  // ---- For the owner only.
  std::variant<AttentionWork, EncodeWork> work;
  Plan plan;        // the steps that are left
  Completion done;  // the ledger may take it while the job is being tokenized
  TimePoint received;
  TimePoint queued;          // when it became ready to run
  int64_t query_tokens = 0;  // the tokens that reports count
  int64_t slice_bytes = 0;   // the size of the next slice of its texts
  double fair_midpoint = 0;  // the middle of its batch's service in virtual time
  TimePoint launched;        // the last launch up to the first successful run
  std::shared_ptr<const BatchOutcome> last_run;  // the last successful run; null before the first
  int device_errors = 0;

  // ---- Guarded by the ledger's lock.
  enum class State { kPreparing, kReady, kRunning } state = State::kPreparing;
  bool cancelled = false;  // Cancel was called while it ran
  int slices = 0;          // slices of its texts that were tokenized

  // Whether it waits for a batch once it is prepared.
  bool needs_run() const {
    const auto* const encode = std::get_if<EncodeWork>(&work);
    return encode == nullptr || encode->needs_run();
  }
};

// The tenant of requests that are queued under this name. A stream without a tenant has a queue
// name of its own that begins with a newline (engine_stream.h).
inline const std::string& TenantOfQueue(const std::string& name) {
  static const std::string no_tenant;
  return name.starts_with('\n') ? no_tenant : name;
}

using JobList = std::vector<std::unique_ptr<Job>>;

inline bool Expired(const Job& job, TimePoint now) { return job.deadline && *job.deadline <= now; }

// For the jobs as one batch: the predicted time in microseconds, the device memory that they need,
// and the tokens that reports count.
double PredictedUs(const JobList& jobs);
MemoryNeed MemoryOf(const JobList& jobs);
int64_t QueryTokens(const JobList& jobs);

// The end of a job, which a completion thread delivers.
struct Answer {
  std::unique_ptr<Job> job;  // null if it was withdrawn while a tokenizer held it
  Completion done;
  absl::Status status;
  int64_t bytes = 0;  // of the result
};

// The answer of a job that failed or never ran; the second is for the completion of a job that a
// tokenizer holds. The status is a deep copy: a shared one would be reference-counted on several
// threads, inside a library that ThreadSanitizer cannot see into.
Answer Refusal(std::unique_ptr<Job> job, const absl::Status& status);
Answer Refusal(Completion done, const absl::Status& status);

// The answer of a job whose last run's output is in host memory.
Answer Success(std::unique_ptr<Job> job);

}  // namespace castor

// What the engine does at the checkpoints of a running batch: it ends the run when nobody waits for
// any of the batch's requests, lets another batch pass if the policy says so, and answers earlier
// batches that are done meanwhile.
//
// One object belongs to one run. Engine thread only.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/base/run_control.h"
#include "engine/jobs/job.h"
#include "engine/scheduling/scheduler.h"

namespace castor {

// Whether the next batch that is due may run now, at a checkpoint of the batch `running`. Called on
// the engine thread, once per checkpoint interval, while other threads compute. Must be cheap and
// must not throw. Unset: never.
using PassingPolicy = std::function<bool(const JobList& running)>;

// What else the engine thread may do at a checkpoint. The functions outlive the run.
struct Meanwhile {
  std::function<void()> run_due;       // runs the batch that is due, if any, up to its answers
  std::function<bool()> older_done;    // whether a batch launched earlier is done; as PassingPolicy
  std::function<void()> finish_older;  // answers it
};

class BatchRun final : public RunControl {
 public:
  // `jobs` are those of the batch. All arguments must outlive this object.
  BatchRun(const Scheduler& scheduler, const JobList& jobs, const PassingPolicy& may_pass,
           const Meanwhile& meanwhile);

  // Whether the run was ended because every job was cancelled or had expired.
  bool ended() const { return ended_; }

 private:
  bool WantsCheckpoint() noexcept override;
  // noexcept, because the guard around the device would swallow an exception from here.
  absl::Status AtCheckpoint() noexcept override;

  const Scheduler& scheduler_;
  const JobList& jobs_;
  const PassingPolicy& may_pass_;
  const Meanwhile& meanwhile_;
  bool ended_ = false;
  bool answers_older_ = false;
  bool makes_way_ = false;
};

}  // namespace castor

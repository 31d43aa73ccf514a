// What the engine says at the checkpoints of a batch that runs: it ends the run when nobody waits
// for any of the batch's requests any more, and lets shorter work pass where the policy says so.
//
// One object belongs to one run. Engine thread only.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/base/run_control.h"
#include "engine/jobs/job.h"
#include "engine/scheduling/scheduler.h"

namespace castor {

// Whether the batch that is due next may run now, at a checkpoint of the batch `running`. Asked on
// the engine thread, once in a checkpoint's interval, while other threads compute; must be cheap
// and not throw. Unset: never.
using PassingPolicy = std::function<bool(const JobList& running)>;

class BatchRun final : public RunControl {
 public:
  // `jobs` are those of the batch. Where `may_pass` says so, `run_due` runs the batch that is due,
  // if there is one, from its launch to its answers. All outlive this object.
  BatchRun(const Scheduler& scheduler, const JobList& jobs, const PassingPolicy& may_pass,
           const std::function<void()>& run_due);

  // Whether it has ended the run: every job was cancelled or has expired.
  bool ended() const { return ended_; }

 private:
  bool WantsCheckpoint() noexcept override;
  // An error here must not be lost in what guards the device.
  absl::Status AtCheckpoint() noexcept override;

  const Scheduler& scheduler_;
  const JobList& jobs_;
  const PassingPolicy& may_pass_;
  const std::function<void()>& run_due_;
  bool ended_ = false;
  bool makes_way_ = false;
};

}  // namespace castor

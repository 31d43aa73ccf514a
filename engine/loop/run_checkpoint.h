// What the engine does at the checkpoints of a running batch: it ends the run when nobody waits for
// any of the batch's requests, lets a shorter batch pass (ledger/runs.h), and answers earlier
// batches that are done meanwhile.
//
// One object belongs to one run. Engine thread only.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/base/run_control.h"
#include "engine/ledger/ledger.h"

namespace castor {

// What the engine thread may do at a checkpoint. The functions outlive the run; those that return
// bool are called once per checkpoint interval, while other threads compute: they must be cheap.
struct Meanwhile {
  std::function<bool()> may_pass;      // whether a batch is due that may pass the running one
  std::function<void()> run_due;       // runs it, up to its answers
  std::function<bool()> older_done;    // whether a batch launched earlier is done
  std::function<void()> finish_older;  // answers it
};

class BatchRun final : public RunControl {
 public:
  // `jobs` are those of the batch. All arguments must outlive this object.
  BatchRun(const Ledger& ledger, const JobList& jobs, const Meanwhile& meanwhile);

  // Whether the run was ended because every job was cancelled or had expired.
  bool ended() const { return ended_; }

 private:
  bool WantsCheckpoint() noexcept override;
  // noexcept, because the guard around the device would swallow an exception from here.
  absl::Status AtCheckpoint() noexcept override;

  const Ledger& ledger_;
  const JobList& jobs_;
  const Meanwhile& meanwhile_;
  bool ended_ = false;
  bool answers_older_ = false;
  bool makes_way_ = false;
};

}  // namespace castor

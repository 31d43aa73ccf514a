#include "engine/scheduling/run_checkpoint.h"

#include <chrono>

#include "engine/base/error.h"

namespace castor {
namespace {

// Short compared with a request's usual wait, long compared with a check of the scheduler's state.
constexpr std::chrono::milliseconds kInterval{2};

}  // namespace

BatchRun::BatchRun(const Scheduler& scheduler, const JobList& jobs, const PassingPolicy& may_pass,
                   const std::function<void()>& run_due)
    : RunControl(kInterval),
      scheduler_(scheduler),
      jobs_(jobs),
      may_pass_(may_pass),
      run_due_(run_due) {}

bool BatchRun::WantsCheckpoint() noexcept {
  ended_ = scheduler_.AllDead(jobs_);
  makes_way_ = !ended_ && may_pass_ && may_pass_(jobs_);
  return ended_ || makes_way_;
}

absl::Status BatchRun::AtCheckpoint() noexcept {
  if (ended_)
    return MakeError(Reason::kCancelled, "every request of this run was cancelled or expired");
  if (makes_way_) run_due_();
  return absl::OkStatus();
}

}  // namespace castor

#include "engine/loop/run_checkpoint.h"

#include <chrono>

#include "engine/base/error.h"

namespace castor {
namespace {

// Short compared with a request's usual wait, long compared with a look at the ledger.
constexpr std::chrono::milliseconds kInterval{2};

}  // namespace

BatchRun::BatchRun(const Ledger& ledger, const JobList& jobs, const Meanwhile& meanwhile)
    : RunControl(kInterval), ledger_(ledger), jobs_(jobs), meanwhile_(meanwhile) {}

bool BatchRun::WantsCheckpoint() noexcept {
  ended_ = ledger_.AllDead(jobs_);
  answers_older_ = !ended_ && meanwhile_.older_done();
  makes_way_ = !ended_ && meanwhile_.may_pass();
  return ended_ || answers_older_ || makes_way_;
}

absl::Status BatchRun::AtCheckpoint() noexcept {
  if (ended_) {
    return MakeError(Reason::kCancelled, "every request of this run was cancelled or expired");
  }
  if (answers_older_) meanwhile_.finish_older();
  if (makes_way_) meanwhile_.run_due();
  return absl::OkStatus();
}

}  // namespace castor

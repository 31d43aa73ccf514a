#include "engine/ledger/runs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/attention/problem.h"

namespace castor {
namespace {

// The number of nested runs, each much shorter than the one that it preempts.
constexpr size_t kMaxDepth = 4;

// A batch whose requests are all shorter than this is preempted by other tenants only. A preemption
// costs a launch, and similar requests would gain little by it.
constexpr double kMinPreemptibleUs = kShortWhileUs / 2;

// A run that has taken longer than predicted is expected to need this fraction of its time so far
// once more.
constexpr double kOverrun = 0.1;

}  // namespace

double Runs::DoneUs(const Run& run, TimePoint now) {
  return run.done_us + (run.preempted ? 0 : std::max(0.0, Microseconds(run.since, now)));
}

double Runs::LeftUs(const Run& run, TimePoint now) {
  const double done = DoneUs(run, now);
  return std::max(run.plan.predicted_us - done, kOverrun * done);
}

double Runs::MaxPreemptorUs(const Run& run, TimePoint now) {
  if (run.plan.longest_us < kMinPreemptibleUs) return 0;
  return kMuchShorter * std::min(LeftUs(run, now), run.plan.longest_us);
}

Runs::Id Runs::Begin(RunPlan plan, TimePoint now) {
  plan.preempts = plan.preempts && !runs_.empty();
  if (plan.preempts) {
    Run& below = runs_.back();
    below.done_us = DoneUs(below, now);
    below.preempted = true;
    below.since = now;
  }
  const auto gap_since = std::exchange(gap_since_, std::nullopt);
  runs_.push_back({.id = ++last_,
                   .plan = std::move(plan),
                   .gap_us = gap_since ? Microseconds(*gap_since, now) : 0,
                   .done_us = 0,
                   .preempted_us = 0,
                   .since = now,
                   .preempted = false});
  const RunMemory held = memory();
  peak_ = {.activations = std::max(peak_.activations, held.activations),
           .workspace = std::max(peak_.workspace, held.workspace)};
  return last_;
}

double Runs::End(Id id, TimePoint now, bool completed, bool more) noexcept {
  const auto run =
      std::find_if(runs_.begin(), runs_.end(), [id](const Run& run) { return run.id == id; });
  const double done = DoneUs(*run, now);
  const bool counts = completed || done > run->plan.predicted_us;
  if (counts && run->plan.predicted_us > 0) {
    predicted_us_.Add(run->plan.predicted_us, now);
    measured_us_.Add(run->gap_us + done, now);
  }
  if (run->plan.preempts && run != runs_.begin()) {
    Run& below = *std::prev(run);
    below.preempted_us += Microseconds(below.since, now);
    below.since = now;
    below.preempted = false;
  }
  runs_.erase(run);
  if (runs_.empty() && more) gap_since_ = now;
  return done;
}

double Runs::Slowdown(TimePoint now) const {
  return std::clamp(
      (measured_us_.At(now) + kShortWhileUs) / (predicted_us_.At(now) + kShortWhileUs),
      1 / kMaxSlowdown, kMaxSlowdown);
}

// The runs of a few requests halve the uncertainty.
double Runs::SlowdownUncertainty(TimePoint now) const {
  return kFewRequestsUs / (kFewRequestsUs + measured_us_.At(now));
}

Runs::PreemptionLimit Runs::LimitNow(TimePoint now) const {
  if (runs_.empty() || runs_.size() >= kMaxDepth) return {.most_us = 0, .others_us = 0};
  const Run& run = runs_.back();
  const double done = DoneUs(run, now);
  // The allowance lets short batches preempt a run that has just begun. Other tenants may take
  // more, since turns between tenants are fair in any case.
  const auto limit = [&](double own_share, double allowance_us, double us) {
    const double left = done * (1 - own_share) / own_share + allowance_us - run.preempted_us;
    return std::max(0.0, std::min(us, left));
  };
  return {.most_us = limit(kOwnShare, kShortWhileUs, MaxPreemptorUs(run, now)),
          .others_us = limit(kOwnShareOfTenants, kFewRequestsUs, LeftUs(run, now)),
          .tenant = run.plan.tenant,
          .fair_midpoint = run.plan.fair_midpoint};
}

int64_t Runs::held_bytes() const {
  attention::Count held = 0;
  for (const Run& run : runs_) held += run.plan.device_bytes;
  return held.value();
}

RunMemory Runs::memory() const {
  attention::Count activations = 0;
  for (const Run& run : runs_) activations += run.plan.activation_bytes;
  return {.activations = activations.value(),
          .workspace = std::max<int64_t>(0, held_bytes() - activations.value())};
}

Runs::Wait Runs::WaitFor(double us, TimePoint now, int64_t room) const {
  Wait wait;
  int64_t held = held_bytes();
  size_t depth = runs_.size();
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run, --depth) {
    const bool preempts = wait.preempted_us > 0 ||
                          (us <= MaxPreemptorUs(*run, now) && depth < kMaxDepth && held <= room);
    (preempts ? wait.preempted_us : wait.us) += LeftUs(*run, now);
    held -= run->plan.device_bytes;
  }
  return wait;
}

}  // namespace castor

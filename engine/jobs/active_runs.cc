#include "engine/jobs/active_runs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/attention/count.h"

namespace castor {
namespace {

// Runs one upon another, each much shorter than the one below it.
constexpr size_t kMostDepth = 4;

// What may pass a run before it has had time of its own. Turns between tenants are fair in any
// case, so other tenants may take more: a few short requests at once.
constexpr double kAllowanceUs = 20'000;
constexpr double kOthersAllowanceUs = 100'000;

// A run that takes longer than predicted is taken to need this part of its time so far once more.
constexpr double kOverrun = 0.1;

// The pace: how long runs are remembered, how much of them it takes to believe it, and its bounds.
constexpr std::chrono::duration<double> kRecent{1.0};
constexpr double kUnknownUs = 20'000;
constexpr double kMostPace = 8;
// How much of them it takes until the pace of what comes is half as doubtful.
constexpr double kDoubtUs = 100'000;

}  // namespace

double ActiveRuns::Recent::DecayTo(TimePoint now) const {
  const std::chrono::duration<double> elapsed = now - at;
  return elapsed.count() <= 0 ? 1 : std::exp(-elapsed / kRecent);
}

double ActiveRuns::DoneUs(const Run& run, TimePoint now) {
  return run.done_us + (run.held_up ? 0 : std::max(0.0, Microseconds(run.since, now)));
}

double ActiveRuns::LeftUs(const Run& run, TimePoint now) {
  const double done = DoneUs(run, now);
  return std::max(run.plan.predicted_us - done, kOverrun * done);
}

double ActiveRuns::PassedByUs(const Run& run, TimePoint now) {
  return kMuchShorter * std::min(LeftUs(run, now), run.plan.longest_us);
}

ActiveRuns::Id ActiveRuns::Begin(Plan plan, TimePoint now) noexcept {
  MutexLock lock(mu_);
  plan.passes = plan.passes && !runs_.empty();
  if (plan.passes) {
    Run& below = runs_.back();
    below.done_us = DoneUs(below, now);
    below.held_up = true;
    below.since = now;
  }
  runs_.push_back({.id = ++last_,
                   .plan = std::move(plan),
                   .done_us = 0,
                   .passed_us = 0,
                   .since = now,
                   .held_up = false});
  const RunMemory memory = MemoryLocked();
  peak_ = {.activations = std::max(peak_.activations, memory.activations),
           .workspace = std::max(peak_.workspace, memory.workspace)};
  return last_;
}

double ActiveRuns::End(Id id, TimePoint now, bool completed) noexcept {
  MutexLock lock(mu_);
  const auto run =
      std::find_if(runs_.begin(), runs_.end(), [id](const Run& run) { return run.id == id; });
  const double done = DoneUs(*run, now);
  const bool tells = completed || done > run->plan.predicted_us;
  if (tells && run->plan.predicted_us > 0) {
    const double decay = recent_.DecayTo(now);
    recent_ = {.predicted_us = decay * recent_.predicted_us + run->plan.predicted_us,
               .measured_us = decay * recent_.measured_us + done,
               .at = now};
  }
  if (run->plan.passes && run != runs_.begin()) {
    Run& below = *std::prev(run);
    below.passed_us += Microseconds(below.since, now);
    below.since = now;
    below.held_up = false;
  }
  runs_.erase(run);
  return done;
}

double ActiveRuns::Pace(TimePoint now) const noexcept {
  MutexLock lock(mu_);
  const double decay = recent_.DecayTo(now);
  return std::clamp(
      (decay * recent_.measured_us + kUnknownUs) / (decay * recent_.predicted_us + kUnknownUs),
      1 / kMostPace, kMostPace);
}

double ActiveRuns::Doubt(TimePoint now) const noexcept {
  MutexLock lock(mu_);
  return kDoubtUs / (kDoubtUs + recent_.DecayTo(now) * recent_.measured_us);
}

ActiveRuns::Passage ActiveRuns::MayPass(TimePoint now) const noexcept {
  MutexLock lock(mu_);
  if (runs_.empty() || runs_.size() >= kMostDepth) return {.most_us = 0, .others_us = 0};
  const Run& run = runs_.back();
  const double done = DoneUs(run, now);
  const auto most = [&](double own_share, double allowance_us, double us) {
    const double left = done * (1 - own_share) / own_share + allowance_us - run.passed_us;
    return std::max(0.0, std::min(us, left));
  };
  return {.most_us = most(kOwnShare, kAllowanceUs, PassedByUs(run, now)),
          .others_us = most(kOwnShareOfTenants, kOthersAllowanceUs, LeftUs(run, now)),
          .tenant = run.plan.tenant,
          .half_turn = run.plan.half_turn};
}

int64_t ActiveRuns::HeldLocked() const {
  attention::Count held = 0;
  for (const Run& run : runs_) held += run.plan.device_bytes;
  return held.value();
}

int64_t ActiveRuns::held_bytes() const noexcept {
  MutexLock lock(mu_);
  return HeldLocked();
}

RunMemory ActiveRuns::MemoryLocked() const {
  attention::Count activations = 0;
  for (const Run& run : runs_) activations += run.plan.activation_bytes;
  return {.activations = activations.value(),
          .workspace = std::max<int64_t>(0, HeldLocked() - activations.value())};
}

ActiveRuns::Memory ActiveRuns::memory() const noexcept {
  MutexLock lock(mu_);
  return {.now = MemoryLocked(), .peak = peak_};
}

ActiveRuns::Wait ActiveRuns::WaitFor(double us, TimePoint now, int64_t beside) const noexcept {
  MutexLock lock(mu_);
  Wait wait;
  int64_t held = HeldLocked();
  size_t depth = runs_.size();
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run, --depth) {
    const bool passes =
        wait.passed_us > 0 || (us <= PassedByUs(*run, now) && depth < kMostDepth && held <= beside);
    (passes ? wait.passed_us : wait.us) += LeftUs(*run, now);
    held -= run->plan.device_bytes;
  }
  return wait;
}

}  // namespace castor

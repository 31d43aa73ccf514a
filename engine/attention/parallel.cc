#include "engine/attention/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/base/machine.h"
#include "engine/base/run_control.h"
#include "engine/base/team.h"

namespace castor::attention {
namespace {

using std::chrono::steady_clock;
using Step = std::function<bool(int worker, int64_t task, int64_t step)>;

// Operations of an algorithm's passes between two looks at the clock. They are simple instructions,
// which take longer than the products in other steps.
constexpr double kPassStep = kStepOperations / 4;

constexpr int64_t kMostTasksPerLook = 256;

// A worker goes on with its task for this long once the engine thread has none left.
constexpr std::chrono::milliseconds kAlone{1};

std::atomic<int> g_workers = 0;  // 0: not set
thread_local bool t_alone = false;

Team& TeamOfThisThread() {
  thread_local std::unique_ptr<Team> team;
  thread_local int workers = 0;  // that it was made for: the system may have given fewer
  if (const int wanted = ParallelWorkers(); workers != wanted) {
    team.reset();
    team = std::make_unique<Team>(wanted - 1);
    workers = wanted;
  }
  return *team;
}

// Runs a small job on this thread. It ends before a look at the clock is worthwhile, so the next
// job looks.
absl::Status RunAlone(int64_t tasks, RunControl& control, const Step& body) {
  BeatHere();
  for (int64_t task = 0; task < tasks; ++task) {
    for (int64_t step = 0; body(0, task, step); ++step) {
      if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
    }
    // An estimate can be far too low.
    if (task % kMostTasksPerLook != kMostTasksPerLook - 1) continue;
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// The tasks of one stage, over all of its rounds.
class TaskLoop {
 public:
  TaskLoop(int64_t tasks, double flops, RunControl& control, const Step& body)
      : tasks_(tasks),
        // A small task is not worth a look at the clock.
        tasks_per_look_(std::clamp<int64_t>(
            static_cast<int64_t>(kStepOperations * static_cast<double>(tasks) / flops), 1,
            kMostTasksPerLook)),
        control_(control),
        body_(body),
        heartbeat_(Heartbeat::OfThisThread()),
        current_(std::min<int64_t>(ParallelWorkers(), tasks)) {}

  absl::Status Run() {
    while (FindWork()) {
      stop_.store(false, std::memory_order_relaxed);
      first_is_done_.store(false, std::memory_order_relaxed);
      due_ = false;
      const auto threads = static_cast<int64_t>(workers_.size());
      if (threads == 1) {
        Work(0);
      } else {
        // A worker whose thread does not come keeps its task for the next round.
        TeamOfThisThread().Run(static_cast<int>(threads), [this](int thread) { Work(thread); });
      }
      if (!due_) continue;
      if (absl::Status status = control_.Pause(); !status.ok()) return status;
    }
    return control_.Checkpoint();
  }

 private:
  static constexpr int64_t kNone = -1;

  // A worker's task, on a line of its own.
  struct alignas(64) CurrentTask {
    int64_t task = kNone;
    int64_t step = 0;
  };

  // Chooses the workers of the next round: all of them while there are tasks to take, then those
  // with an unfinished task. So the engine thread, which is thread 0, has work in every round.
  bool FindWork() {
    workers_.clear();
    const bool all = next_.load(std::memory_order_relaxed) < tasks_;
    for (size_t w = 0; w < current_.size(); ++w) {
      if (all || current_[w].task != kNone) workers_.push_back(static_cast<int>(w));
    }
    return !workers_.empty();
  }

  void Work(int64_t thread) {
    const int worker = workers_[thread];
    CurrentTask& mine = current_[worker];
    int64_t since_look = 0;
    steady_clock::time_point until{};
    while (!stop_.load(std::memory_order_relaxed)) {
      if (mine.task == kNone) {
        const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
        if (task >= tasks_) break;
        mine = {task, 0};
      }
      const bool more = body_(worker, mine.task, mine.step++);
      if (!more) mine.task = kNone;
      if (thread == 0) {
        // The engine thread beats for all, so that the workers share no cache line for it.
        if (heartbeat_ != nullptr) heartbeat_->Beat();
        if (!more && ++since_look < tasks_per_look_) continue;
        since_look = 0;
        due_ = control_.Due();
        if (due_) stop_.store(true, std::memory_order_relaxed);
      } else if (more && first_is_done_.load(std::memory_order_relaxed)) {
        // The engine thread, which asks the control for checkpoints, has no work in this round: the
        // next one must begin soon.
        const steady_clock::time_point now = steady_clock::now();
        if (until == steady_clock::time_point{}) until = now + kAlone;
        if (now >= until) break;
      }
    }
    if (thread == 0) first_is_done_.store(true, std::memory_order_relaxed);
  }

  const int64_t tasks_;
  const int64_t tasks_per_look_;
  RunControl& control_;
  const Step& body_;
  Heartbeat* const heartbeat_;
  std::vector<CurrentTask> current_;
  std::vector<int> workers_;  // of the round, by thread
  std::atomic<int64_t> next_ = 0;
  std::atomic<bool> stop_ = false;           // no more steps in this round
  std::atomic<bool> first_is_done_ = false;  // the engine thread has no task left
  bool due_ = false;                         // the engine thread's alone
};

}  // namespace

int ParallelWorkers() {
  if (t_alone) return 1;
  static const int processors = AvailableProcessors();
  const int set = g_workers.load(std::memory_order_relaxed);
  return set > 0 ? set : processors;
}

void SetParallelWorkers(int workers) { g_workers.store(workers, std::memory_order_relaxed); }

void ComputeOnThisThreadAlone() { t_alone = true; }

void StartWorkers() { TeamOfThisThread(); }

absl::Status ParallelFor(int64_t tasks, double flops, RunControl& control,
                         const std::function<void(int worker, int64_t task)>& body) {
  return ParallelSteps(tasks, flops, control, [&body](int worker, int64_t task, int64_t) {
    body(worker, task);
    return false;
  });
}

absl::Status ParallelSteps(int64_t tasks, double flops, RunControl& control, const Step& body) {
  if (flops < kWorthWakingFor) return RunAlone(tasks, control, body);
  return TaskLoop(tasks, flops, control, body).Run();
}

absl::Status RunPasses(kernels::Passes& passes, RunControl& control) {
  double done = 0;  // operations since the last look at the clock
  const auto look = [&](double operations) {
    done += operations;
    if (done < kPassStep) return absl::OkStatus();
    done = 0;
    return control.Checkpoint();
  };
  for (; passes.pass().tasks > 0; passes.Next()) {
    const kernels::Passes::Pass& pass = passes.pass();
    if (!pass.ordered) {
      absl::Status status = ParallelFor(pass.tasks, pass.operations, control,
                                        [&passes](int, int64_t task) { passes.Do(task); });
      if (status.ok()) status = look(pass.operations);
      if (!status.ok()) return status;
      continue;
    }
    for (int64_t task = 0; task < pass.tasks; ++task) {
      passes.Do(task);
      absl::Status status = look(pass.operations / static_cast<double>(pass.tasks));
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

bool StepThrough(kernels::Passes& passes, int64_t* task) {
  for (double operations = 0; passes.pass().tasks > 0 && operations < kPassStep;) {
    const kernels::Passes::Pass& pass = passes.pass();
    operations += pass.operations / static_cast<double>(pass.tasks);
    passes.Do((*task)++);
    if (*task < pass.tasks) continue;
    passes.Next();
    *task = 0;
  }
  return passes.pass().tasks > 0;
}

}  // namespace castor::attention

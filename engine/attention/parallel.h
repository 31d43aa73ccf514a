// Runs a kernel's tasks on a team of threads (base/team.h). Each calling thread has a team of its
// own, which begins with its first call that shares work and ends with the thread.
//
// All of it is called on a device's engine thread, whose heartbeat beats as tasks are done, or on a
// thread that computes alone. Tasks
// run in rounds. When the run's control says that a checkpoint is due, workers finish their current
// step and stop. Once all have stopped, the run is held up, ended, or goes on with the next round.
// So the time between two checkpoints is about the control's interval plus one step. Errors come
// from the control, and mean that tasks are left undone.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "engine/base/run_control.h"
#include "engine/kernels/passes.h"

namespace castor::attention {

// About 100 us of one core, in operations: the most that a task, or a step of one, should take.
inline constexpr double kStepOperations = 8e6;

// About 50 us of one core: what waking a thread costs, give or take. A job of fewer operations runs
// on the calling thread alone.
inline constexpr double kWorthWakingFor = 4e6;

// The most workers that a call can have, the calling thread among them: at first as many as there
// are processors. Setting it is for the start, and for tests: it takes effect with a thread's next
// call, and calls that are running meanwhile must not exist.
int ParallelWorkers();
void SetParallelWorkers(int workers);

// Calls body(worker, task) once for each task in [0, tasks) and returns when all are done. Workers
// are numbered from 0; each takes the next task when it is done with one, so tasks may differ in
// size, and results must not depend on which worker ran a task. `flops` is a rough total for all
// tasks: a job that would be done before a sleeping thread wakes up runs on this thread alone.
// `body` must not throw.
absl::Status ParallelFor(int64_t tasks, double flops, RunControl& control,
                         const std::function<void(int worker, int64_t task)>& body);

// The same for tasks that may take long: body(worker, task, step) does one step of its task and
// returns whether there is another. A worker finishes a task before it takes the next, and keeps it
// across a checkpoint, scratch area included.
absl::Status ParallelSteps(int64_t tasks, double flops, RunControl& control,
                           const std::function<bool(int worker, int64_t task, int64_t step)>& body);

// Runs an algorithm to its end. All workers share each pass that is not ordered.
absl::Status RunPasses(kernels::Passes& passes, RunControl& control);

// Runs one step of an algorithm, some of its tasks, on this thread alone. `*task` is the next task
// of the pass, 0 at first. Returns whether there is more to do.
bool StepThrough(kernels::Passes& passes, int64_t* task);

// This thread gets no team from now on: its calls run on it alone. Background threads use this, so
// that the engine's team keeps the cores.
void ComputeOnThisThreadAlone();

// Starts the team's threads, so that the first request does not wait for them.
void StartWorkers();

}  // namespace castor::attention

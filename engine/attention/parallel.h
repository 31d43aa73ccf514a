// Runs a kernel's tasks on the tensor library's thread team, so that our kernels and its matrix
// products share one set of threads instead of competing for the cores.
//
// All of it is called on a device's engine thread, whose heartbeat beats as tasks are done. Tasks
// are done in rounds: when the run's control says that a checkpoint is due, workers take no more
// tasks, and when all have stopped, the run is held up, ended, or goes on with the next round. So
// between two checkpoints a run takes the control's interval and what workers have in hand.
// Anything but OK comes from the control, and means that tasks are left undone.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "engine/base/run_control.h"
#include "engine/kernels/passes.h"

namespace castor::attention {

// About 100 us of one core in operations: what a task, or a step of one, should take at most.
inline constexpr double kStepOperations = 8e6;

// How many workers there are at most, when called on this thread.
int ParallelWorkers();

// Calls body(worker, task) once for each task in [0, tasks) and returns when all are done. Workers
// are numbered from 0; each takes the next task when it is done with one, so tasks may differ in
// size, and results must not depend on which worker ran a task. `flops` is what all tasks together
// compute, roughly: a job that is done before a sleeping thread has woken up runs on this thread
// alone. `body` must not throw.
absl::Status ParallelFor(int64_t tasks, double flops, RunControl& control,
                         const std::function<void(int worker, int64_t task)>& body);

// The same for tasks that may take long: body(worker, task, step) does one step of its task and
// returns whether there is another. A worker finishes a task before it takes the next, and keeps
// it over a checkpoint: what it has in its scratch area for the task is still there.
absl::Status ParallelSteps(int64_t tasks, double flops, RunControl& control,
                           const std::function<bool(int worker, int64_t task, int64_t step)>& body);

// Runs an algorithm to its end, all workers sharing each pass that allows it.
absl::Status RunPasses(kernels::Passes& passes, RunControl& control);

// A step of an algorithm on this thread alone: some of its tasks. `*task` is where the pass has got
// to, 0 at first. Returns whether there is more to do.
bool StepThrough(kernels::Passes& passes, int64_t* task);

// Starts the team's threads, which otherwise the first request would wait for.
void StartWorkers();

}  // namespace castor::attention

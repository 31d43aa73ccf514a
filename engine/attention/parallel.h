// Runs a kernel's tasks on the tensor library's thread team, so that our kernels and its matrix
// products share one set of threads instead of competing for the cores.
#pragma once

#include <cstdint>
#include <functional>

namespace castor::attention {

// How many workers ParallelFor uses at most, when called on this thread.
int ParallelWorkers();

// Calls body(worker, task) once for each task in [0, tasks) and returns when all are done. Workers
// are numbered from 0; each takes the next task when it is done with one, so tasks may differ in
// size, and results must not depend on which worker ran a task. `flops` is what all tasks together
// compute, roughly: a job that is done before a sleeping thread has woken up runs on this thread
// alone. `body` must not throw. Called on a device's engine thread,
// whose heartbeat it lets beat as tasks are done.
void ParallelFor(int64_t tasks, double flops,
                 const std::function<void(int worker, int64_t task)>& body);

// Starts the team's threads, which otherwise the first request would wait for.
void StartWorkers();

}  // namespace castor::attention

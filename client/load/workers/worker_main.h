// What `castor-load worker` does once its flags are read.
#pragma once

#include "client/load/workers/worker_server.h"

namespace castor::load {

// Serves until SIGINT or SIGTERM, which end a job too; prints the address on standard error.
// Returns 0. Call it before the process has other threads, which could take the signals. Throws as
// WorkerServer does.
int ServeAsWorker(WorkerOptions options, PrepareJob prepare);

}  // namespace castor::load
